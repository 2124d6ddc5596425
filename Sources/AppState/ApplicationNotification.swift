/// The events that the delegate receives, for any other part of the application: `Application.notifications`.
public enum ApplicationNotification: Hashable, Sendable {
    case willFinishLaunching(LaunchOptions)
    case didFinishLaunching(LaunchOptions)
    case didBecomeActive
    case willResignActive
    case didEnterBackground
    case willEnterForeground
    case willTerminate
    case didReceiveMemoryWarning(MemoryWarning)
    case significantTimeChange(SignificantTimeChange)
    case protectedDataWillBecomeUnavailable
    case protectedDataDidBecomeAvailable
    case openURLs([String], options: [String: Value])
    /// The application was launched again while it ran.
    case reopen(options: [String: Value])
    case continueUserActivity(UserActivity)
    case didReceiveMessage(ReceivedMessage)
    /// A launch that the application has scheduled is due.
    case scheduledLaunch(ScheduledLaunch)
    case didFinishTransfer(FinishedTransfer)
}

/// Something the user is doing that can be continued elsewhere or later.
public struct UserActivity: Hashable, Sendable {
    /// The kind of activity, such as `org.example.Notes.editing`.
    public var type: String
    /// What is needed to continue it.
    public var info: [String: Value]

    /// - Parameters:
    /// - type: the kind of activity.
    ///   - info: what is needed to continue it.
    public init(type: String, info: [String: Value] = [:]) {
        self.type = type
        self.info = info
    }
}

/// A message from another application.
public struct ReceivedMessage: Hashable, Sendable {
    /// The id of the application that sent it. An id is a name, not a proof of identity.
    public let sender: String
    /// The name of the message.
    public let name: String
    /// Its content.
    public let payload: [String: Value]

    /// - Parameters:
    ///   - sender: the id of the application that sent it.
    ///   - name: the name of the message.
    ///   - payload: its content.
    public init(sender: String, name: String, payload: [String: Value] = [:]) {
        self.sender = sender
        self.name = name
        self.payload = payload
    }
}

/// The notifications of the application from the moment this sequence was obtained, each once.
///
/// Every sequence receives all notifications, no matter how many sequences there are. For a slow observer,
/// the latest 256 are kept.
public struct ApplicationNotifications: AsyncSequence, Sendable {
    public typealias Element = ApplicationNotification

    let stream: AsyncStream<ApplicationNotification>

    /// Iterates over the notifications as they arrive.
    public struct AsyncIterator: AsyncIteratorProtocol {
        var iterator: AsyncStream<ApplicationNotification>.Iterator

        /// The next notification; nil when the task was cancelled.
        public mutating func next() async -> ApplicationNotification? { await iterator.next() }
    }

    public func makeAsyncIterator() -> AsyncIterator {
        AsyncIterator(iterator: stream.makeAsyncIterator())
    }
}
