/// Handles the events of an application's life. Every callback has a default implementation that does
/// nothing.
///
/// Callbacks run one after the other, on the main thread. An `async` callback may take a while: when it
/// returns, the library acknowledges the event to appstated, and only then calls the next callback. appstated
/// sets the deadlines. If a callback does not return in time, the application is suspended or ended without
/// the acknowledgement.
///
///     @main
///     final class Notes: ApplicationDelegate {
///         func applicationDidEnterBackground(_ application: Application) async { await save() }
///     }
@MainActor
public protocol ApplicationDelegate: AnyObject {
    /// The state that is saved when the application enters the background or ends, and by
    /// ``Application/saveState()``, and restored at the next launch.
    associatedtype RestorableState: Codable = Never

    init()

    /// The id of the application's desktop entry: `[A-Za-z0-9._-]`, up to 255 characters.
    ///
    /// The default is the name of the program. The id must be the name of the desktop entry's file without
    /// `.desktop`. Otherwise an application that appstated has launched does not take over its launch, and
    /// other programs do not find it.
    static var applicationID: String { get }

    /// How appstated treats the application.
    static var options: ApplicationOptions { get }

    // MARK: Launching

    /// The launch has begun. Saved state has not been restored yet.
    func application(
        _ application: Application, willFinishLaunchingWithOptions launchOptions: LaunchOptions)

    /// The launch is nearly over: create windows here. The launch ends when this callback returns.
    func application(
        _ application: Application, didFinishLaunchingWithOptions launchOptions: LaunchOptions) async

    // MARK: Foreground and background

    /// One of the application's windows has received the focus.
    func applicationDidBecomeActive(_ application: Application)

    /// The application is about to lose the focus.
    func applicationWillResignActive(_ application: Application)

    /// No window of the application is visible any longer. When this callback returns, appstated may suspend
    /// the application.
    ///
    /// The state is encoded and saved after this callback returns.
    /// ``Application/withBackgroundTask(named:_:)`` gives more time.
    func applicationDidEnterBackground(_ application: Application) async

    /// A window of the application is about to become visible.
    func applicationWillEnterForeground(_ application: Application)

    // MARK: The end

    /// The application is about to end, because appstated, a signal or the application itself ends it. It ends when
    /// this callback has returned and the state has been encoded and saved.
    ///
    /// This is not called for an application that is killed, by force or because memory is short while it is suspended.
    func applicationWillTerminate(_ application: Application) async

    // MARK: The system

    /// Memory is short: free data that can be recreated.
    func applicationDidReceiveMemoryWarning(_ application: Application, level: MemoryWarning)

    /// The clock, the time zone or the date has changed.
    func applicationSignificantTimeChange(_ application: Application, cause: SignificantTimeChange)

    /// The screen was locked: drop data that others must not see. When this callback returns, the library
    /// tells appstated that this is done.
    func applicationProtectedDataWillBecomeUnavailable(_ application: Application) async

    /// The screen was unlocked.
    func applicationProtectedDataDidBecomeAvailable(_ application: Application)

    // MARK: Requests from others

    /// The user or another program asks the application to open URLs.
    func application(_ application: Application, open urls: [String], options: [String: Value])

    /// The user launches the application again while it runs. One that has no window opens one.
    ///
    /// Options: `activation-token`, with which a Wayland compositor lets the application raise a window, and
    /// `source-app-id`, the application that asked for the launch. Both may be absent.
    func application(_ application: Application, reopen options: [String: Value])

    /// The user wants to continue an activity here that they began elsewhere or earlier. From another machine come only
    /// the types that the desktop entry declares (`X-AppState-ActivityTypes=`).
    func application(_ application: Application, continue activity: UserActivity)

    /// Another application has sent a message.
    func application(_ application: Application, didReceive message: ReceivedMessage)

    /// A launch that the application has scheduled is due: it was launched in the background for it, or runs already.
    ///
    /// The application is not suspended until this returns, for as long as a background task may take. Shortly before
    /// the limit, the task that runs this is cancelled. Other callbacks do not wait for it. A launch happens once:
    /// schedule the next one here.
    func application(_ application: Application, perform launch: ScheduledLaunch) async

    /// A background transfer of the application has ended: see ``BackgroundTransferSession``.
    ///
    /// The application is not suspended until this callback returns, or its time in the background is over. Then a
    /// transfer that has finished is forgotten; one that has failed can be tried again.
    func application(_ application: Application, didFinish transfer: FinishedTransfer) async

    // MARK: Scenes

    /// Returns the delegate of a scene that is about to be connected; nil: the application has no such scene, and what
    /// was saved for it is dropped.
    ///
    /// The default is nil: the application has no scenes.
    func application(
        _ application: Application, configurationForConnecting scene: Scene, options: SceneConnectionOptions
    ) -> SceneConfiguration?

    // MARK: State

    /// Returns the state to restore at the next launch; nil: there is nothing to restore.
    func applicationWillEncodeRestorableState(_ application: Application) -> RestorableState?

    /// Receives the state that an earlier run saved. Called before `didFinishLaunching`, unless appstated
    /// becomes available only after the launch.
    func application(_ application: Application, didDecodeRestorableState state: RestorableState)
}

extension ApplicationDelegate {
    /// The name of the program, with `-` in place of each character that an id may not contain.
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
    public func application(_ application: Application, reopen options: [String: Value]) {}
    public func application(_ application: Application, continue activity: UserActivity) {}
    public func application(_ application: Application, didReceive message: ReceivedMessage) {}
    public func application(_ application: Application, perform launch: ScheduledLaunch) async {}
    public func application(
        _ application: Application, configurationForConnecting scene: Scene, options: SceneConnectionOptions
    ) -> SceneConfiguration? { nil }
    public func application(_ application: Application, didFinish transfer: FinishedTransfer) async {}
    public func applicationWillEncodeRestorableState(_ application: Application) -> RestorableState? { nil }
    public func application(_ application: Application, didDecodeRestorableState state: RestorableState) {}

    /// Creates the delegate and runs the application until it ends. `@main` calls this.
    public static func main() {
        Application.shared.run(Self())
    }
}

extension ApplicationDelegate {
    /// Whether the delegate saves state at all.
    var hasState: Bool { RestorableState.self != Never.self }

    /// The delegate's state as bytes. Empty: there is nothing to restore. nil: it has no state, and the saved
    /// state stays as it is.
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
}
