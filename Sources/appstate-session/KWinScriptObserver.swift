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
    /// The orders that KWin has not carried out yet.
    private var orders: [Int: KWinOrder] = [:]
    private var lastOrder = 0

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
        runtime: String? = Environment["XDG_RUNTIME_DIR"]
    ) throws(ObserverFailure) {
        do throws(ObserverFailure) {
            kwin = try SessionPeer("KWin", name: Self.name, session: session)
        } catch .unsupported(let why) {
            throw Self.isKDE ? .unreachable(why) : .unsupported(why)
        }
        Self.made += 1
        script = "appstate-session\(kwin.bus.uniqueName)-\(Self.made)"
        self.runtime = runtime ?? ""
        try checkDisplay(display)
        let text = try Self.text(in: directories)
        guard let runtime else {
            throw .unsupported("XDG_RUNTIME_DIR, where KWin would find our script, is not set")
        }
        let path = "\(runtime)/\(script)-\(getpid()).js"
        do throws(KernelFailure) {
            try WholeFile.write("const AGENT = '\(bus.uniqueName)', SCRIPT = '\(script)';\n\(text)", to: path)
        } catch {
            throw .unsupported("our script for KWin cannot be written: \(error)")
        }
        defer { unlink(path) }
        do throws(BusFailure) {
            try listen()
            try run(path)
        } catch  where error.name.map(Self.silences.contains) ?? true {
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
        if let message = try? newScriptingCall("unloadScript"), (try? message.append(script)) != nil {
            try? bus.send(message)
        }
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
        try order(KWinOrder.minimization(of: windows), "minimize")
    }

    func activate(_ windows: [UInt64], token: String?) throws(ObserverFailure) {
        try order(KWinOrder.activation(of: windows), "activate")
    }

    /// Runs a separate script that ends at once: a script that stays cannot be called from outside.
    private func order(_ text: String, _ action: String) throws(ObserverFailure) {
        lastOrder += 1
        let number = lastOrder
        do throws(KernelFailure) {
            let order = try KWinOrder(
                text, name: "\(script)-\(number)", directory: runtime, kwin: kwin,
                done: { [unowned self] failure in
                    orders[number] = nil
                    guard let failure else { return }
                    notices.append("KWin does not \(action) a window: \(failure)")
                    kwin.ring()
                })
            orders[number] = order
            order.begin()
        } catch {
            throw .unreachable("our script for KWin cannot be written: \(error)")
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

    private func run(_ path: String) throws(BusFailure) {
        let loading = try newScriptingCall("loadScript")
        try loading.append(path)
        try loading.append(script)
        let number = try bus.call(loading).readInt32()
        guard number >= 0 else {
            throw BusFailure(operation: "load", subject: path, errno: EINVAL, name: "it is already loaded")
        }
        do throws(BusFailure) {
            try run(at: "/Scripting/Script\(number)")
        } catch  where error.name == "org.freedesktop.DBus.Error.UnknownObject" {
            // KWin 5.
            try run(at: "/\(number)")
        }
    }

    private func run(at path: String) throws(BusFailure) {
        _ = try bus.call(
            try bus.newCall(
                destination: kwin.connection, path: path, interface: "org.kde.kwin.Script", member: "run"))
    }

    private func newScriptingCall(_ member: String) throws(BusFailure) -> Message {
        try bus.newCall(
            destination: kwin.connection, path: "/Scripting", interface: "org.kde.kwin.Scripting",
            member: member)
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
