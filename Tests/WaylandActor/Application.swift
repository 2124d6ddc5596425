import CWayland
import Glibc

/// One client of the compositor and the commands that it executes.
final class Application {
    private struct Mistake: Error {
        let text: String
    }

    private struct Window {
        let surface: OpaquePointer
        let role: OpaquePointer
        let toplevel: OpaquePointer
    }

    private let connection: Connection
    private let shell = XDGShell()
    private let base: OpaquePointer
    private let compositor: OpaquePointer
    private let buffer: OpaquePointer
    private var taskbar: Taskbar?
    private var plasma: PlasmaBar?
    private var clipboard: Clipboard?
    private var windows: [Int: Window] = [:]
    private var lastWindow = 0
    private var unread: [UInt8] = []

    /// The side of a window, in pixels.
    private static let side: Int32 = 64

    init?() {
        guard let connection = Connection(), let base = connection.bind(shell.base),
            let compositor = connection.bind(Protocol.own(wl_compositor_interface)),
            let memory = connection.bind(Protocol.own(wl_shm_interface)),
            let buffer = Self.buffer(memory)
        else { return nil }
        self.connection = connection
        self.base = base
        self.compositor = compositor
        self.buffer = buffer
        connection.listen(to: base) { [unowned self] _, arguments in
            connection.ask(self.base, XDGShell.Base.pong.rawValue, [arguments[0]])
        }
    }

    /// The content of all windows: black.
    private static func buffer(_ memory: OpaquePointer) -> OpaquePointer? {
        let size = side * side * 4
        var name = Array(
            "\(getenv("XDG_RUNTIME_DIR").map { String(cString: $0) } ?? "/tmp")/window.XXXXXX".utf8CString)
        let file = mkstemp(&name)
        unlink(name)
        guard file >= 0, ftruncate(file, off_t(size)) == 0, let pool = wl_shm_create_pool(memory, file, size)
        else { return nil }
        defer { Glibc.close(file) }
        return wl_shm_pool_create_buffer(pool, 0, side, side, side * 4, WL_SHM_FORMAT_XRGB8888.rawValue)
    }

    func run() {
        say("ready")
        while true {
            while wl_display_prepare_read(connection.display) != 0 {
                guard wl_display_dispatch_pending(connection.display) >= 0 else { return }
            }
            wl_display_flush(connection.display)
            var ready = [STDIN_FILENO, wl_display_get_fd(connection.display)].map {
                pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
            }
            poll(&ready, nfds_t(ready.count), -1)
            guard wl_display_read_events(connection.display) >= 0,
                wl_display_dispatch_pending(connection.display) >= 0
            else { return }
            if ready[0].revents != 0 { read() }
        }
    }

    private func read() {
        var buffer = [UInt8](repeating: 0, count: 4_096)
        let count = Glibc.read(STDIN_FILENO, &buffer, buffer.count)
        guard count > 0 else { exit(0) }
        unread += buffer.prefix(count)
        while let end = unread.firstIndex(of: UInt8(ascii: "\n")) {
            obey(String(decoding: unread[..<end], as: UTF8.self))
            unread.removeFirst(end + 1)
        }
    }

    private func obey(_ line: String) {
        var words = line.split(separator: " ").map(String.init)[...]
        guard let number = words.popFirst(), let command = words.popFirst() else { return }
        do {
            let answer = try perform(command, Array(words))
            // A window is shown once the reply to its first commit is acknowledged: two round trips.
            guard connection.synchronize(), connection.synchronize() else {
                throw Mistake(text: "the compositor is gone")
            }
            say((["#\(number)", "ok"] + answer).joined(separator: " "))
        } catch {
            say("#\(number) error \(error)")
        }
    }

    private func perform(_ command: String, _ words: [String]) throws -> [String] {
        let rest = words.dropFirst().joined(separator: " ")
        switch command {
        case "open": return [String(open(words.first ?? "", rest))]
        case "open-many":
            guard words.count == 2, let count = Int(words[0]) else { throw Mistake(text: "open-many") }
            return (0..<count).map { String(open(words[1], "window \($0)")) }
        case "name":
            connection.ask(try window(words).toplevel, XDGShell.Toplevel.setAppID.rawValue, text: rest)
        case "title":
            connection.ask(try window(words).toplevel, XDGShell.Toplevel.setTitle.rawValue, text: rest)
        case "put-away": connection.ask(try window(words).toplevel, XDGShell.Toplevel.setMinimized.rawValue)
        case "close":
            _ = try window(words)
            close(Int(words[0]) ?? 0)
        case "bar": try bar(words) { $0 == rest }
        case "plasma": try plasma(words)
        case "copy", "uncopy": try copy(words, isText: command == "copy")
        case "bar-each": try bar(words) { $0.hasPrefix(rest) }
        default: throw Mistake(text: "there is no command \(command)")
        }
        return []
    }

    private func bar(_ words: [String], where matches: (String) -> Bool) throws {
        guard let deed = words.first.flatMap(Deed.init) else { throw Mistake(text: "do what?") }
        if plasma == nil { plasma = PlasmaBar(connection) }
        if plasma == nil, taskbar == nil { taskbar = Taskbar(connection) }
        // Processes what other clients have done meanwhile.
        guard connection.synchronize() else { throw Mistake(text: "the compositor is gone") }
        let count = plasma?.perform(deed, where: matches) ?? taskbar?.perform(deed, where: matches) ?? 0
        guard count > 0 else { throw Mistake(text: "there is no such window") }
    }

    private func copy(_ words: [String], isText: Bool) throws {
        if clipboard == nil { clipboard = Clipboard(connection) }
        guard let clipboard, let selection = words.first else {
            throw Mistake(text: "this compositor cannot do that")
        }
        clipboard.set(isPrimary: selection == "PRIMARY", toText: isText)
    }

    private func plasma(_ words: [String]) throws {
        if plasma == nil { plasma = PlasmaBar(connection) }
        guard let plasma, connection.synchronize(), plasma.perform(words) else {
            throw Mistake(text: "this compositor cannot do that")
        }
    }

    private func window(_ words: [String]) throws -> Window {
        guard let window = words.first.flatMap({ Int($0) }).flatMap({ windows[$0] }) else {
            throw Mistake(text: "which window?")
        }
        return window
    }

    private func open(_ name: String, _ title: String) -> Int {
        guard let surface = wl_compositor_create_surface(compositor),
            let role = connection.ask(
                base, XDGShell.Base.getSurface.rawValue, [wl_argument(o: nil), wl_argument(o: surface)],
                makes: shell.surface),
            let toplevel = connection.ask(
                role, XDGShell.Surface.getToplevel.rawValue, [wl_argument(o: nil)], makes: shell.toplevel)
        else { return 0 }
        lastWindow += 1
        let number = lastWindow
        windows[number] = Window(surface: surface, role: role, toplevel: toplevel)
        connection.listen(to: role) { [unowned self] _, arguments in
            connection.ask(role, XDGShell.Surface.acknowledge.rawValue, [arguments[0]])
            wl_surface_attach(surface, buffer, 0, 0)
            wl_surface_damage(surface, 0, 0, Self.side, Self.side)
            wl_surface_commit(surface)
        }
        connection.listen(to: toplevel) { [unowned self] event, _ in
            if event == XDGShell.closeEvent { close(number) }
        }
        if name != "-" { connection.ask(toplevel, XDGShell.Toplevel.setAppID.rawValue, text: name) }
        connection.ask(toplevel, XDGShell.Toplevel.setTitle.rawValue, text: title)
        wl_surface_commit(surface)
        return number
    }

    private func close(_ number: Int) {
        guard let window = windows.removeValue(forKey: number) else { return }
        connection.ask(window.toplevel, XDGShell.Toplevel.destroy.rawValue, ends: true)
        connection.ask(window.role, XDGShell.Surface.destroy.rawValue, ends: true)
        wl_surface_destroy(window.surface)
    }
}
