import AppStateContract

/// What others send to an application: URLs, user activities, messages (§ 3).
extension Machine {
    /// About the bytes that wait for one application that cannot read them. A message has 64 KiB at most, and bytes in it take
    /// twice their size here.
    public static let waitingBytes = 160 << 10
    /// How many of them. Each costs time when it comes, and when it is written down.
    static let mostWaiting = 64

    /// Has the delegate told, now or as soon as it can read: what policy has suspended runs for it.
    mutating func deliver(
        _ number: ApplicationNumber, _ announcements: [Announcement], _ why: String
    ) throws(Refusal) {
        let application = try require(number)
        guard application.delegate != nil else { throw .noDelegate(number) }
        if application.isTerminating { throw .noSuchApplication("\(number) any more: it is ending") }
        if !application.takesDeliveries {
            let bytes = announcements.reduce(0) { $0 + $1.waitingBytes }
            guard application.backlog.textBytes + bytes <= Self.waitingBytes else {
                throw .limitExceeded("bytes that wait for application \(number)", limit: Self.waitingBytes)
            }
            guard application.backlog.deliveryCount + announcements.count <= Self.mostWaiting else {
                throw .limitExceeded("messages that wait for application \(number)", limit: Self.mostWaiting)
            }
            try checkText(bytes, of: application.user)
        }
        if !application.isLaunching { needed(number, why) }
        updateAnnouncing(number, .demand) {
            for announcement in announcements {
                $0.announce(announcement.signal, with: announcement.payload, &$1)
            }
        }
    }
}

extension Application {
    /// What is sent to it reaches it at once.
    var takesDeliveries: Bool { isReachable && launch == nil }
}
