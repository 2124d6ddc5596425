/// What the delegate is told, for anybody else in the application who wants to know: `Application.notifications`.
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
    case continueUserActivity(UserActivity)
    case didReceiveMessage(ReceivedMessage)
}

/// Something the user is doing that can go on elsewhere or later.
public struct UserActivity: Hashable, Sendable {
    /// What kind of activity, such as `org.example.Notes.editing`.
    public var type: String
    /// What is needed to continue it.
    public var info: [String: Value]

    /// - Parameters:
    ///   - type: what kind of activity.
    ///   - info: what is needed to continue it.
    public init(type: String, info: [String: Value] = [:]) {
        self.type = type
        self.info = info
    }
}

/// A message of another application.
public struct ReceivedMessage: Hashable, Sendable {
    /// The application that sent it: its id, which is a name and proves no identity.
    public let sender: String
    /// What the message is.
    public let name: String
    /// What it says.
    public let payload: [String: Value]
}

/// The notifications of the application from the moment on when this was taken, each once.
///
/// Every sequence has all of them, however many there are. A slow observer keeps the latest 256.
public struct ApplicationNotifications: AsyncSequence, Sendable {
    public typealias Element = ApplicationNotification

    let stream: AsyncStream<ApplicationNotification>

    /// Walks through the notifications as they come.
    public struct AsyncIterator: AsyncIteratorProtocol {
        var iterator: AsyncStream<ApplicationNotification>.Iterator

        /// The next notification; nil when the task was cancelled.
        public mutating func next() async -> ApplicationNotification? { await iterator.next() }
    }

    public func makeAsyncIterator() -> AsyncIterator {
        AsyncIterator(iterator: stream.makeAsyncIterator())
    }
}
