internal import AppStateBus
internal import Glibc

/// The application that runs in this process.
@MainActor
public final class Application {
    /// The only instance.
    public static let shared = Application()

    /// Its state, as last announced to the delegate. Without appstated it is ``ApplicationState/active``.
    public internal(set) var state = ApplicationState.notRunning
    /// Why it was launched; nil before the launch has begun.
    public internal(set) var launchOptions: LaunchOptions?
    /// The object that handles the events of its life.
    public internal(set) var delegate: (any ApplicationDelegate)?
    /// The id that it is registered with.
    public internal(set) var id = ""

    /// What the user is doing, to be continued on another machine (`appstatectl handoff`) or later; nil: nothing that can
    /// be continued.
    public var userActivity: UserActivity? {
        didSet { if userActivity != oldValue { life?.tellUserActivity() } }
    }

    /// Whether unsaved data would be lost if the application ended now. When memory is short, appstated ends
    /// an application with unsaved changes only if no other application that may be ended is left.
    public var hasUnsavedChanges = false {
        didSet { if hasUnsavedChanges != oldValue { life?.tellUnsavedChanges() } }
    }

    /// Whether the screen is unlocked, so that data that is protected while it is locked can be used. Without appstated,
    /// it is.
    public internal(set) var isProtectedDataAvailable = true

    /// Whether appstated manages the application. If not, everything works except functions that need
    /// appstated, and the state is `active`.
    public var isManaged: Bool { life?.path != nil }

    var life: Life?
    var tasks: [UInt64: RunningTask] = [:]
    var lastTask: UInt64 = 0
    var inhibitors: [RunningInhibitor] = []
    private var observers: [UInt64: AsyncStream<ApplicationNotification>.Continuation] = [:]
    private var lastObserver: UInt64 = 0

    private init() {}

    // MARK: Main loops

    /// Runs the application on the main thread until it ends. This also serves the main queue: tasks of the main actor
    /// and work dispatched to `DispatchQueue.main` run. `@main` on a delegate calls this.
    ///
    /// SIGTERM, SIGINT and SIGHUP end the application as ``terminate(status:)`` does: see
    /// <doc:LifeCycle#Ended-by-a-signal>.
    public func run(_ delegate: some ApplicationDelegate) -> Never {
        let connection = begin(delegate, handlesSignals: true) { () throws(BusFailure) in
            try Connection(servesMainQueue: true, runsItself: true)
        }
        do {
            try connection.run()
        } catch {
            Log.say("\(error)")
            exit(1)
        }
    }

    /// Begins the application's life inside another main loop: GLib's, Qt's, a game's.
    ///
    /// - Parameters:
    ///   - delegate: handles the events of the application's life.
    ///   - servesMainQueue: whether ``Connection/dispatch()`` also serves the main queue, on which tasks of the main
    ///     actor run. false: something else serves it, such as dispatchMain() or Foundation's run loop.
    ///   - handlesSignals: whether SIGTERM, SIGINT and SIGHUP end the application as ``terminate(status:)`` does: see
    ///     <doc:LifeCycle#Ended-by-a-signal>. false: they are left to the program.
    /// - Returns: the connection that the other loop must serve. The application keeps it.
    public func connect<Delegate: ApplicationDelegate>(
        _ delegate: Delegate, servesMainQueue: Bool = true, handlesSignals: Bool = false
    ) -> Connection {
        begin(delegate, handlesSignals: handlesSignals) { () throws(BusFailure) in
            try Connection(servesMainQueue: servesMainQueue)
        }
    }

    private func begin<Delegate: ApplicationDelegate>(
        _ delegate: Delegate, handlesSignals: Bool, on make: () throws(BusFailure) -> Connection
    ) -> Connection {
        precondition(life == nil, "an application can be launched only once")
        do {
            let connection = try make()
            self.delegate = delegate
            id = Delegate.applicationID
            let life = Life(self, delegate, Delegate.options, connection)
            self.life = life
            if handlesSignals { connection.handleSignals { [weak life] in life?.end(by: $0) } }
            life.begin()
            connection.arm()
            return connection
        } catch {
            // A process without a free descriptor at its start cannot run at all.
            Log.say("\(error)")
            exit(1)
        }
    }

    // MARK: Observers

    /// The events that the delegate receives, from now on. Any number of objects can observe them.
    ///
    /// Each notification is sent right before the delegate's callback. An observer receives it when the main actor is
    /// free, which may be after the callback. appstated does not wait for observers.
    public var notifications: ApplicationNotifications {
        lastObserver += 1
        let number = lastObserver
        let (stream, continuation) = AsyncStream.makeStream(
            of: ApplicationNotification.self, bufferingPolicy: .bufferingNewest(256))
        observers[number] = continuation
        continuation.onTermination = { _ in
            Task { @MainActor in Application.shared.observers[number] = nil }
        }
        return ApplicationNotifications(stream: stream)
    }

    func post(_ notification: ApplicationNotification) {
        for observer in observers.values { observer.yield(notification) }
    }

    // MARK: Saved state

    /// Saves the state now, so that it survives an end or a suspension without notice: for example when the user has
    /// stopped typing.
    ///
    /// This asks the delegate for its state as at the end
    /// (``ApplicationDelegate/applicationWillEncodeRestorableState(_:)``). When it returns, the state is on the disk.
    /// If appstated refuses temporarily, the library tries again for a few seconds, each time with the delegate's
    /// state at that moment. A delegate without a `RestorableState` has nothing to save.
    ///
    /// - Throws: ``ApplicationError`` if appstated is not available, refuses, or has not yet returned the state of an
    ///   earlier run, which this would overwrite; the error of the state's own coding; `CancellationError` if the task
    ///   is cancelled before another attempt. The state that was saved before is then still there.
    public func saveState() async throws {
        guard let life else { throw ApplicationError.alone }
        try await life.saveNow()
    }

    // MARK: The end

    /// Terminates the application from within, for example when its last window is closed. Calls the
    /// delegate's `applicationWillTerminate`, saves the state, and exits the process. All of this takes at
    /// most 5 seconds.
    ///
    /// - Parameter status: its exit status.
    public func terminate(status: Int32 = 0) {
        guard let life else { exit(status) }
        life.terminate(status)
    }
}
