import AppState
import Dispatch
import Glibc

/// An application for tests, written as any developer would write one: only with the library, and with a window on the
/// display that DISPLAY names. Only its time limits are longer.
///
/// Each callback prints a line `told NAME STATE WORD…`. A line on standard input is a command, and is answered by
/// `answer WORD…`. Options: `--stateless` (the delegate of Stateless.swift), `--background`, `--poll` (its own loop),
/// `--dispatch` (dispatchMain()), `--signals` (in these loops the library handles signals), `--window`; `--scenes` (those
/// of Scenes.swift); `--record FILE`: it takes no commands, writes to the file, and its text is the URLs that it has
/// opened, each once; `--impatient`: it waits for the daemon only as long as applications do; `--hang`: it blocks the
/// main thread when it first comes to the foreground, until a line arrives.
@main
final class Actor: ApplicationDelegate {
    static let applicationID = "org.example.LibraryActor"

    static var options: ApplicationOptions {
        let arguments = CommandLine.arguments
        var options = ApplicationOptions(launchMode: arguments.contains("--background") ? .background : nil)
        if !arguments.contains("--impatient") {
            options.limits.registration = 300_000_000
            options.limits.call = 300_000_000
            options.limits.end = 300_000_000
        }
        return options
    }

    struct RestorableState: Codable {
        struct Place: Codable {
            var line: Int
            var column: Int?
        }

        var text: String
        var places: [Place]
        var bytes: [UInt8]
    }

    var text = ""
    var places: [RestorableState.Place] = []
    var bytes: [UInt8] = []
    private var window: Window?
    private var commands: Commands?
    /// Whether the next didEnterBackground blocks the main thread until a line arrives on standard input.
    var blocks = false
    /// The same for the next willEnterForeground.
    private var hangs = CommandLine.arguments.contains("--hang")
    /// Whether willTerminate waits until `depart()`.
    var lingers = false
    private var departure: CheckedContinuation<Void, Never>?
    private var records = false

    init() {}

    static func main() {
        let arguments = CommandLine.arguments
        let delegate = Actor()
        if arguments.contains("--idle") { return idle() }
        if arguments.contains("--stateless") { Application.shared.run(Stateless()) }
        if let option = arguments.firstIndex(of: "--record"), option + 1 < arguments.count {
            delegate.records = true
            let file = Glibc.open(arguments[option + 1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
            dup2(file, STDOUT_FILENO)
        } else {
            delegate.commands = Commands(delegate)
        }
        if arguments.contains("--poll") {
            poll(Application.shared.connect(delegate, handlesSignals: arguments.contains("--signals")))
        } else if arguments.contains("--dispatch") {
            let connection = Application.shared.connect(
                delegate, servesMainQueue: false, handlesSignals: arguments.contains("--signals"))
            let source = DispatchSource.makeReadSource(fileDescriptor: connection.descriptor, queue: .main)
            source.setEventHandler { MainActor.assumeIsolated { connection.dispatch() } }
            source.resume()
            dispatchMain()
        } else {
            Application.shared.run(delegate)
        }
    }

    private static func poll(_ connection: Connection) {
        while true {
            var ready = pollfd(fd: connection.descriptor, events: Int16(POLLIN), revents: 0)
            Glibc.poll(&ready, 1, connection.timeout)
            connection.dispatch()
        }
    }

    // MARK: Callbacks

    func tell(_ name: String, _ words: String...) { tell(name, words) }

    private func tell(_ name: String, _ words: [String]) {
        say((["told", name, Application.shared.state.rawValue] + words).joined(separator: " "))
    }

    func application(
        _ application: Application, willFinishLaunchingWithOptions launchOptions: LaunchOptions
    ) {
        tell(
            "willFinishLaunching", "first:\(launchOptions.isFirstLaunch)",
            "exit:\(launchOptions.exitReason ?? "-")", "restorable:\(launchOptions.isRestorable)")
    }

    func application(
        _ application: Application, didFinishLaunchingWithOptions launchOptions: LaunchOptions
    ) async {
        tell("didFinishLaunching")
        if CommandLine.arguments.contains("--window") { window = Window() }
    }

    func applicationDidBecomeActive(_ application: Application) { tell("didBecomeActive") }
    func applicationWillResignActive(_ application: Application) { tell("willResignActive") }
    func applicationWillEnterForeground(_ application: Application) {
        tell("willEnterForeground")
        if hangs { commands?.waitForLine() }
        hangs = false
    }

    func applicationDidEnterBackground(_ application: Application) async {
        tell("didEnterBackground")
        if blocks { commands?.waitForLine() }
        blocks = false
        await Task.yield()
        tell("doneInBackground")
    }

    func applicationWillTerminate(_ application: Application) async {
        tell("willTerminate")
        if lingers { await withCheckedContinuation { departure = $0 } }
    }

    func depart() {
        departure?.resume()
        departure = nil
    }

    func applicationDidReceiveMemoryWarning(_ application: Application, level: MemoryWarning) {
        tell("didReceiveMemoryWarning", level.rawValue)
    }

    func applicationSignificantTimeChange(_ application: Application, cause: SignificantTimeChange) {
        tell("significantTimeChange", cause.rawValue)
    }

    func applicationProtectedDataWillBecomeUnavailable(_ application: Application) async {
        tell("protectedDataWillBecomeUnavailable")
    }

    func applicationProtectedDataDidBecomeAvailable(_ application: Application) {
        tell("protectedDataDidBecomeAvailable")
    }

    func application(_ application: Application, open urls: [String], options: [String: Value]) {
        tell("open", urls.joined(separator: ","))
        guard records else { return }
        let opened = text.split(separator: "+").map(String.init)
        text = (opened + urls.filter { !opened.contains($0) }).joined(separator: "+")
        application.hasUnsavedChanges = true
        say("text \(text)")
    }

    func application(_ application: Application, reopen options: [String: Value]) {
        tell("reopen", options["activation-token"]?.stringValue ?? "-")
    }

    func application(_ application: Application, continue activity: UserActivity) {
        tell("continue", activity.type, activity.info["note"]?.stringValue ?? "-")
    }

    func application(_ application: Application, didReceive message: ReceivedMessage) {
        tell("didReceive", message.sender, message.name, message.payload["word"]?.stringValue ?? "-")
    }

    func application(
        _ application: Application, configurationForConnecting scene: Scene, options: SceneConnectionOptions
    ) -> SceneConfiguration? {
        guard CommandLine.arguments.contains("--scenes") else { return nil }
        tell("configuration", scene.persistentIdentifier, scene.role)
        return SceneConfiguration(delegate: Part(tells: tell))
    }

    func application(_ application: Application, perform launch: ScheduledLaunch) async {
        tell("perform", launch.name, application.launchOptions?.reason ?? "-")
    }

    func application(_ application: Application, didFinish transfer: FinishedTransfer) async {
        tell("didFinish", transfer.id, transfer.isSuccess ? "finished" : transfer.error ?? "-")
    }

    func applicationWillEncodeRestorableState(_ application: Application) -> RestorableState? {
        RestorableState(text: text, places: places, bytes: bytes)
    }

    func application(_ application: Application, didDecodeRestorableState state: RestorableState) {
        (text, places, bytes) = (state.text, state.places, state.bytes)
        let places = places.map { "\($0.line):\($0.column ?? -1)" }.joined(separator: ",")
        tell("didDecode", text, places, "\(bytes.count)")
    }

    /// The same program without the library's life cycle: for measurements.
    private static func idle() {
        say("told idle -")
        while true { pause() }
    }
}

/// Writes a line immediately.
func say(_ line: String) {
    let bytes = Array((line + "\n").utf8)
    _ = bytes.withUnsafeBytes { write(STDOUT_FILENO, $0.baseAddress, $0.count) }
}
