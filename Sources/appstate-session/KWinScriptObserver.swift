import AppStateBus
import AppStateContract
import Desktop
import Glibc
import Linux
import Windows

/// Watches the windows of KWin on Wayland, including Xwayland's, if KWin offers org_kde_plasma_window_management only
/// to other clients: our script in KWin reports them (dbus/org.appstate1.Windows.xml).
///
/// The script sends all windows. It sends them again when the last report was taken and something has changed. KWin is
/// asked to load it when the observer is made, and to unload it when the observer is released.
final class KWinScriptObserver: WindowObserver {
    let system = WindowSystem.kwinScript
    /// True until the script has reported, and when its report cannot be understood.
    private(set) var isBlind = true
    let subject = "KWin by a script"
    private let kwin: SessionPeer
    /// The name of the script in KWin. Each observer has its own, since two would take the script from each other.
    private let script: String
    nonisolated(unsafe) private static var made = 0
    private var desk = ScriptedDesk()
    private var slots: [Slot] = []
    private var notices: [String] = []
    /// The directory in which KWin finds scripts.
    private let runtime: String
    private var orders = 0

    /// How long KWin may take to carry out an order, in microseconds.
    private static let patience: UInt64 = 5_000_000
    private static let name = "org.kde.KWin"
    /// The errors of a KWin that does not respond, or has stopped responding.
    private static let silences: Set<String> = [
        "org.freedesktop.DBus.Error.NameHasNoOwner", "org.freedesktop.DBus.Error.ServiceUnknown",
        "org.freedesktop.DBus.Error.NoReply",
        "org.freedesktop.DBus.Error.Timeout", "org.freedesktop.DBus.Error.Disconnected",
    ]
    /// The path of the script below a data directory.
    private static let file = "appstated/kwin/windows.js"

    /// Connects, and makes KWin load the script.
    ///
    /// - Parameters:
    ///   - session: the session bus.
    ///   - display: the value of WAYLAND_DISPLAY; the KWin must be the one of this display.
    ///   - directories: the data directories in which to look for the script.
    ///   - runtime: the value of XDG_RUNTIME_DIR, where KWin finds the script with the values that it needs.
    /// - Throws: `unreachable` if there is no bus, KWin does not answer, or KWin is not on the bus of a KDE desktop;
    ///   `unsupported` if it is not on the bus of another desktop, belongs to another display, or does not take the script.
    init(
        session: SessionBus, display: String, directories: [String] = KWinScriptObserver.directories,
        runtime: String = Environment["XDG_RUNTIME_DIR"] ?? ""
    ) throws(ObserverFailure) {
        do throws(ObserverFailure) {
            kwin = try SessionPeer("KWin", name: Self.name, session: session)
        } catch .unsupported(let why) {
            throw Self.isKDE ? .unreachable(why) : .unsupported(why)
        }
        Self.made += 1
        script = "appstate-session\(kwin.bus.uniqueName)-\(Self.made)"
        self.runtime = runtime
        try checkDisplay(display)
        let text = try Self.text(in: directories)
        do {
            try listen()
            try run("const AGENT = '\(bus.uniqueName)', SCRIPT = '\(script)';\n\(text)", as: script)
        } catch let error as BusFailure where error.name.map(Self.silences.contains) ?? true {
            throw .unreachable("KWin does not run our script: \(error)")
        } catch {
            throw .unsupported("KWin does not run our script: \(error)")
        }
        do throws(ObserverFailure) {
            try kwin.begin()
        } catch {
            throw .unreachable("\(error)")
        }
        // The script reports before KWin answers that the script has run.
        if isBlind, notices.isEmpty { lose("KWin's journal says what is wrong with the script") }
    }

    /// The desktop is KDE's, which starts KWin again when it has crashed (kwin_wayland_wrapper).
    static var isKDE: Bool {
        Environment["XDG_CURRENT_DESKTOP"]?.split(separator: ":").contains("KDE") == true
    }

    deinit {
        // This is sent at once, unless the bus does not read. In that case the script notices the end by itself.
        try? unload(script)
    }

    var descriptor: Int32 { kwin.descriptor }
    private var bus: Bus { kwin.bus }

    var windows: [ObservedWindow] { desk.windows }
    var desktopProcesses: Set<Int32> { desk.fixtures.union([kwin.process]) }

    func dispatch() throws(ObserverFailure) { try kwin.dispatch() }

    func takeNotices() -> [String] {
        defer { notices = [] }
        return notices
    }

    func minimize(_ windows: [UInt64]) throws(ObserverFailure) {
        try order("window.minimized = true;", of: windows)
    }

    func activate(_ windows: [UInt64], token: String?) throws(ObserverFailure) {
        try order(
            "window.minimized = false; workspace[isSix ? 'activeWindow' : 'activeClient'] = window;",
            of: windows)
    }

    /// Runs a separate script that ends at once, for KWin 5.27 and 6: a script that stays cannot be called from outside.
    ///
    /// - Parameter windows: the windows, numbered as in kwin/windows.js.
    private func order(_ action: String, of windows: [UInt64]) throws(ObserverFailure) {
        let text = """
            const isSix = typeof workspace.windowList === 'function';
            const list = isSix ? workspace.windowList() : workspace.clientList();
            for (const wanted of [\(windows.map { "\($0)" }.joined(separator: ", "))]) {
                for (const window of list) {
                    const parts = /([0-9a-f]{8})-([0-9a-f]{4})/i.exec(String(window.internalId));
                    if (parseInt(parts[1] + parts[2], 16) === wanted) {
                        \(action)
                    }
                }
            }

            """
        orders += 1
        let name = "\(script)-\(orders)"
        do {
            try run(text, as: name, timeout: Self.patience)
            try unload(name)
        } catch {
            throw .unreachable("KWin does not run our script: \(error)")
        }
    }

    private func lose(_ why: String) {
        defer { kwin.ring() }
        isBlind = true
        notices.append("KWin does not report its windows: \(why)")
    }

    // MARK: Before it begins

    /// The compositor's socket belongs to the compositor itself or to kwin_wayland_wrapper, which starts it and
    /// restarts it.
    private func checkDisplay(_ display: String) throws(ObserverFailure) {
        guard let server = try PlasmaObserver.server(of: display),
            server == kwin.process || server == (try? Proc().status(kwin.process))?.parent
        else {
            throw .unsupported(
                "the KWin on the session bus is not the compositor at WAYLAND_DISPLAY=\(display)")
        }
    }

    private static func text(in directories: [String]) throws(ObserverFailure) -> String {
        for directory in directories {
            if let text = try? TextFile.read("\(directory)/\(file)") { return text }
        }
        throw .unsupported(
            "our script for KWin, \(file), is in none of \(directories.joined(separator: ", "))")
    }

    /// The data directories, beginning with the one in which the program itself is installed.
    static var directories: [String] {
        let program = realpath("/proc/self/exe", nil)
        defer { free(program) }
        let path = program.map { String(cString: $0) } ?? ""
        let prefix = path.split(separator: "/").dropLast(2).map { "/\($0)" }.joined()
        return [prefix + "/share"] + DataDirectories.all
    }

    // MARK: The script

    private func listen() throws(BusFailure) {
        slots = [
            try bus.add(
                Interface(
                    BusNames.windows,
                    methods: [
                        Method(WindowsMember.replaceWindows.rawValue, in: [("windows", "s")]) {
                            [unowned self] call in
                            try take(call)
                        }
                    ]), at: BusNames.windowsPath),
            try bus.match(
                "type='signal',sender='\(kwin.connection)',path='/KWin',interface='\(Self.name)',"
                    + "member='showingDesktopChanged'",
                failed: kwin.refused
            ) { [unowned self] message in
                if message.sender == kwin.connection, let isShown = try? message.readBool() {
                    desk.isShown = isShown
                    kwin.ring()
                }
            },
        ]
        // The answer to this question comes after the bus has set up the match.
        let question = try bus.newPropertyCall(
            "showingDesktop", of: Self.name, destination: kwin.connection, path: "/KWin")
        desk.isShown = try bus.call(question).readVariant() == .bool(true)
    }

    /// Makes KWin load a script and run it.
    ///
    /// - Parameter name: the name of the script in KWin; no other script has it.
    private func run(_ text: String, as name: String, timeout: UInt64 = 0) throws {
        let file = "\(runtime)/\(name)-\(getpid()).js"
        try WholeFile.write(text, to: file)
        defer { unlink(file) }
        try load(file, name, timeout)
    }

    private func load(_ file: String, _ name: String, _ timeout: UInt64) throws(BusFailure) {
        let load = try newCall("/Scripting", "org.kde.kwin.Scripting", "loadScript", [file, name])
        let number = try bus.call(load, timeout: timeout).readInt32()
        guard number >= 0 else {
            throw BusFailure(operation: "load", subject: file, errno: EINVAL, name: "it is already loaded")
        }
        do throws(BusFailure) {
            try run(at: "/Scripting/Script\(number)", timeout)
        } catch  where error.name == "org.freedesktop.DBus.Error.UnknownObject" {
            // KWin 5.
            try run(at: "/\(number)", timeout)
        }
    }

    private func run(at path: String, _ timeout: UInt64) throws(BusFailure) {
        _ = try bus.call(try newCall(path, "org.kde.kwin.Script", "run"), timeout: timeout)
    }

    private func unload(_ name: String) throws(BusFailure) {
        try bus.send(try newCall("/Scripting", "org.kde.kwin.Scripting", "unloadScript", [name]))
    }

    private func newCall(
        _ path: String, _ interface: String, _ member: String, _ texts: [String] = []
    ) throws(BusFailure) -> Message {
        let message = try bus.newCall(
            destination: kwin.connection, path: path, interface: interface, member: member)
        for text in texts { try message.append(text) }
        return message
    }

    private func take(_ call: borrowing Call) throws {
        guard call.sender == kwin.connection else {
            throw MethodError(ErrorName.accessDenied.rawValue, "only KWin may report its windows")
        }
        do {
            try desk.take(try call.read { try $0.readString() }.utf8)
            isBlind = false
            kwin.ring()
        } catch let error as ScriptedDesk.Unreadable {
            lose("the report of its script is not understood: \(error)")
            throw MethodError(ErrorName.invalidArgs.rawValue, "\(error)")
        }
        try call.reply()
    }
}
