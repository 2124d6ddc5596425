internal import AppStateBus
internal import Glibc

/// The application that this process is.
@MainActor
public final class Application {
    /// The only one.
    public static let shared = Application()

    /// Where it is in its life, as the delegate was told. Without appstated it is ``ApplicationState/active``.
    public internal(set) var state = ApplicationState.notRunning
    /// Why it was launched; nil before launching has begun.
    public internal(set) var launchOptions: LaunchOptions?
    /// What it does at the turns of its life.
    public internal(set) var delegate: (any ApplicationDelegate)?
    /// Its id, which it is registered with.
    public internal(set) var id = ""

    /// What the user is doing, for another device or a later time; nil: nothing that could go on.
    public var userActivity: UserActivity? {
        didSet { if userActivity != oldValue { life?.tellUserActivity() } }
    }

    /// Whether ending the application now would lose something. One that has unsaved changes is ended for its memory
    /// only when no other that may be ended is left.
    public var hasUnsavedChanges = false {
        didSet { if hasUnsavedChanges != oldValue { life?.tellUnsavedChanges() } }
    }

    /// Whether appstated knows of the application. Without it all works but what needs it, and the state is `active`.
    public var isManaged: Bool { life?.path != nil }

    var life: Life?
    var tasks: [UInt64: RunningTask] = [:]
    var lastTask: UInt64 = 0
    private var observers: [UInt64: AsyncStream<ApplicationNotification>.Continuation] = [:]
    private var lastObserver: UInt64 = 0

    private init() {}

    // MARK: Main loops

    /// Runs the application until it ends, on the main thread, which also serves the main queue: tasks of the main
    /// actor and what is dispatched to `DispatchQueue.main` run. `@main` on a delegate calls this.
    public func run(_ delegate: some ApplicationDelegate) -> Never {
        let connection = begin(delegate) { () throws(BusFailure) in
            try Connection(servesMainQueue: true, runsItself: true)
        }
        do {
            try connection.run()
        } catch {
            Log.say("\(error)")
            exit(1)
        }
    }

    /// Begins the application's life within another main loop: GLib's, Qt's, a game's.
    ///
    /// - Parameters:
    ///   - delegate: what the application does at the turns of its life.
    ///   - servesMainQueue: whether ``Connection/dispatch()`` also serves the main queue, on which tasks of the main actor
    ///     run. false: somebody else does, such as dispatchMain() or Foundation's run loop.
    /// - Returns: what that loop has to serve. The application keeps it.
    public func connect<Delegate: ApplicationDelegate>(
        _ delegate: Delegate, servesMainQueue: Bool = true
    ) -> Connection {
        begin(delegate) { () throws(BusFailure) in try Connection(servesMainQueue: servesMainQueue) }
    }

    private func begin<Delegate: ApplicationDelegate>(
        _ delegate: Delegate, on make: () throws(BusFailure) -> Connection
    ) -> Connection {
        precondition(life == nil, "an application is launched once")
        do {
            let connection = try make()
            self.delegate = delegate
            id = Delegate.applicationID
            let life = Life(self, delegate, Delegate.options, connection)
            self.life = life
            life.begin()
            connection.arm()
            return connection
        } catch {
            // A process that has no descriptors left at its start has nothing to run on.
            Log.say("\(error)")
            exit(1)
        }
    }

    // MARK: Observers

    /// What the delegate is told, from now on: for any object, and for several at once.
    ///
    /// Each is sent right before the delegate is told. An observer takes it when the main actor is free, which may be
    /// after the delegate's callback. appstated does not wait for observers.
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

    /// How many observers there are.
    var observerCount: Int { observers.count }

    func post(_ notification: ApplicationNotification) {
        for observer in observers.values { observer.yield(notification) }
    }

    // MARK: The end

    /// Ends the application by itself, as when its last window is closed: the delegate's
    /// `applicationWillTerminate` is called, state is saved, and the process exits. All of it takes 5 seconds at the most.
    ///
    /// - Parameter status: its exit status.
    public func terminate(status: Int32 = 0) {
        guard let life else { exit(status) }
        life.terminate(status)
    }
}
