/// What an application does at the turns of its life. Every callback has a default that does nothing.
///
/// Callbacks come one after the other, on the main thread. An `async` callback may take its time: returning from it
/// tells appstated that it is done, and the next callback waits until then. All of it ends at the deadlines that
/// appstated sets; an application that does not return in time is suspended or ended without having answered.
///
///     @main
///     final class Notes: ApplicationDelegate {
///         func applicationDidEnterBackground(_ application: Application) async { await save() }
///     }
@MainActor
public protocol ApplicationDelegate: AnyObject {
    /// What is saved when the application goes into the background or ends, and is there again at the next launch.
    associatedtype RestorableState: Codable = Never

    init()

    /// The id of the application's desktop entry: `[A-Za-z0-9._-]`, up to 255 characters.
    ///
    /// The default is the name of the program. It has to be the name of the desktop entry's file without `.desktop`: only so
    /// does an application that appstated has launched take its launch over, and only so do others find it.
    static var applicationID: String { get }

    /// How appstated is to treat the application.
    static var options: ApplicationOptions { get }

    // MARK: Launching

    /// The launch has begun. Saved state has not been restored yet.
    func application(
        _ application: Application, willFinishLaunchingWithOptions launchOptions: LaunchOptions)

    /// The launch is nearly over: make windows here. Returning ends the launch.
    func application(
        _ application: Application, didFinishLaunchingWithOptions launchOptions: LaunchOptions) async

    // MARK: Foreground and background

    /// One of the application's windows has got the focus.
    func applicationDidBecomeActive(_ application: Application)

    /// The application is about to lose the focus.
    func applicationWillResignActive(_ application: Application)

    /// No window of the application can be seen any more. Returning says that it may be suspended.
    ///
    /// The state is asked for and saved after this. More time: ``Application/withBackgroundTask(named:_:)``.
    func applicationDidEnterBackground(_ application: Application) async

    /// A window of the application is about to be seen.
    func applicationWillEnterForeground(_ application: Application)

    // MARK: The end

    /// The application is about to end. Returning lets it end; the state is asked for and saved before.
    ///
    /// A suspended application that is ended is not told.
    func applicationWillTerminate(_ application: Application) async

    // MARK: The system

    /// Memory is short: give back what can be had again.
    func applicationDidReceiveMemoryWarning(_ application: Application, level: MemoryWarning)

    /// The clock, the time zone or the date is another.
    func applicationSignificantTimeChange(_ application: Application, cause: SignificantTimeChange)

    /// The screen was locked: put away what nobody may see. Returning says that it is done.
    func applicationProtectedDataWillBecomeUnavailable(_ application: Application) async

    /// The screen was unlocked.
    func applicationProtectedDataDidBecomeAvailable(_ application: Application)

    // MARK: What others want

    /// Somebody has the application open URLs.
    func application(_ application: Application, open urls: [String], options: [String: Value])

    /// Something that the user did elsewhere or before is to go on here.
    func application(_ application: Application, continue activity: UserActivity)

    /// Another application has sent a message.
    func application(_ application: Application, didReceive message: ReceivedMessage)

    // MARK: State

    /// What is to be there when the application is launched again; nil: nothing is.
    func applicationWillEncodeRestorableState(_ application: Application) -> RestorableState?

    /// What was saved in a run before. Called before `didFinishLaunching`, unless appstated comes after the launch.
    func application(_ application: Application, didDecodeRestorableState state: RestorableState)
}

extension ApplicationDelegate {
    /// The name of the program, with `-` in place of what an id may not have.
    public static var applicationID: String { ProgramName.applicationID }
    public static var options: ApplicationOptions { ApplicationOptions() }

    public func application(
        _ application: Application, willFinishLaunchingWithOptions launchOptions: LaunchOptions
    ) {}
    public func application(
        _ application: Application, didFinishLaunchingWithOptions launchOptions: LaunchOptions
    ) async {}
    public func applicationDidBecomeActive(_ application: Application) {}
    public func applicationWillResignActive(_ application: Application) {}
    public func applicationDidEnterBackground(_ application: Application) async {}
    public func applicationWillEnterForeground(_ application: Application) {}
    public func applicationWillTerminate(_ application: Application) async {}
    public func applicationDidReceiveMemoryWarning(_ application: Application, level: MemoryWarning) {}
    public func applicationSignificantTimeChange(
        _ application: Application, cause: SignificantTimeChange
    ) {}
    public func applicationProtectedDataWillBecomeUnavailable(_ application: Application) async {}
    public func applicationProtectedDataDidBecomeAvailable(_ application: Application) {}
    public func application(_ application: Application, open urls: [String], options: [String: Value]) {}
    public func application(_ application: Application, continue activity: UserActivity) {}
    public func application(_ application: Application, didReceive message: ReceivedMessage) {}
    public func applicationWillEncodeRestorableState(_ application: Application) -> RestorableState? { nil }
    public func application(_ application: Application, didDecodeRestorableState state: RestorableState) {}

    /// Makes the delegate and runs the application until it ends: what `@main` calls.
    public static func main() {
        Application.shared.run(Self())
    }
}

extension ApplicationDelegate {
    /// Whether it has a state to save at all.
    private var hasState: Bool { RestorableState.self != Never.self }

    /// Its state as bytes; empty: nothing is to be there. nil: it has none, and what is saved stays as it is.
    func encodedState(of application: Application) throws -> [UInt8]? {
        guard hasState else { return nil }
        guard let state = applicationWillEncodeRestorableState(application) else { return [] }
        return try StateEncoder.encode(state)
    }

    func restore(_ bytes: [UInt8], to application: Application) throws {
        guard hasState, !bytes.isEmpty else { return }
        let state = try StateDecoder.decode(RestorableState.self, from: bytes)
        self.application(application, didDecodeRestorableState: state)
    }

    var wantsState: Bool { hasState }
}
