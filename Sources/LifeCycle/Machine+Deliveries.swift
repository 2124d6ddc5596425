import AppStateContract

/// Items that others send to an application: URLs, user activities, messages (§ 3).
extension Machine {
    /// The approximate limit of bytes that may wait for one application that cannot read them. A message has
    /// at most 64 KiB, and byte arrays in it take twice their size here.
    public static let waitingBytes = 160 << 10

    /// Sends this to the delegate, now or as soon as it can read. An application that policy has suspended is
    /// resumed for this.
    mutating func deliver(
        _ number: ApplicationNumber, _ announcements: [Announcement], _ why: String
    ) throws(Refusal) {
        let application = try require(number)
        guard application.delegate != nil else { throw .noDelegate(number) }
        if application.isTerminating { throw .noSuchApplication("\(number) any more: it is ending") }
        if !application.takesDeliveries {
            let bytes = announcements.reduce(0) { $0 + $1.waitingBytes }
            guard application.backlog.waitingBytes + bytes <= Self.waitingBytes else {
                throw .limitExceeded("bytes that wait for application \(number)", limit: Self.waitingBytes)
            }
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
    /// Whether signals that are sent to it reach it at once.
    var takesDeliveries: Bool { isReachable && launch == nil }
}
