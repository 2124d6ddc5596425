import AppStateContract

/// Items that others send to an application: URLs, user activities, messages, scheduled launches, the ends of transfers
/// (§ 3).
extension Machine {
    /// The approximate limit of bytes that may wait for one application that cannot read them. A message has
    /// at most 64 KiB, and byte arrays in it take twice their size here.
    public static let waitingBytes = 160 << 10

    /// Sends this to the delegate, now or as soon as it can read. An application that policy has suspended is
    /// resumed for this. A scheduled launch needs no delegate: the application runs for as long as its task.
    mutating func deliver(
        _ number: ApplicationNumber, _ announcements: [Announcement], _ why: String
    ) throws(Refusal) {
        let application = try require(number)
        let announcements = announcements.filter { !application.knowsTransfer(of: $0) }
        if announcements.isEmpty { return }
        guard application.delegate != nil || announcements.allSatisfy(\.isScheduled) else {
            throw .noDelegate(number)
        }
        if application.isTerminating { throw .noSuchApplication("\(number) any more: it is ending") }
        if !application.acceptsDeliveries {
            let bytes = announcements.reduce(0) { $0 + $1.waitingBytes }
            guard application.backlog.waitingBytes + bytes <= Self.waitingBytes else {
                throw .limitExceeded("bytes that wait for application \(number)", limit: Self.waitingBytes)
            }
        }
        if announcements.contains(where: \.isTransfer) { try checkTaskRoom(of: application.user) }
        if !application.isLaunching { needed(number, why) }
        updateAnnouncing(number, .demand) {
            for announcement in announcements { $0.deliver(announcement, &$1) }
        }
    }

    /// The delegate has handled the end of a transfer.
    mutating func finishTransfer(_ number: ApplicationNumber, _ id: String) throws(Refusal) {
        let application = try require(number)
        let name = Application.taskName(ofTransfer: id)
        guard let task = application.tasks.first(where: { $0.owner == nil && $0.name == name }) else {
            throw .noSuchTransfer(number, id)
        }
        update(number, .policy) { $0.tasks.removeAll { $0.id == task.id } }
    }
}

extension Application {
    /// Whether signals that are sent to it reach it at once.
    var acceptsDeliveries: Bool { isReachable && launch == nil }

    /// How many ended transfers are remembered, so that none is announced twice.
    static let transferLimit = 64

    static func taskName(ofTransfer id: String) -> String { "transfer \(id)" }

    /// Whether this is the end of a transfer that it has been told of.
    func knowsTransfer(of announcement: Announcement) -> Bool {
        guard case .transfer(let id, _) = announcement.payload else { return false }
        return transfers.contains(id)
    }

    /// Sends its delegate what another process has for it. A scheduled launch and the end of a transfer come with a
    /// background task. That of a transfer belongs to no connection: it lasts until the delegate says that it is done
    /// with it.
    mutating func deliver(_ delivery: Announcement, _ step: inout Step) {
        var payload = delivery.payload
        switch payload {
        case .scheduled(let name, _):
            let title = name.isEmpty ? "scheduled launch" : "scheduled launch \(name)"
            payload = .scheduled(name, task: addTask(title, of: delegate, step))
        case .transfer(let id, _):
            if transfers.count == Self.transferLimit { transfers.removeFirst() }
            transfers.append(id)
            _ = addTask(Self.taskName(ofTransfer: id), of: nil, step)
        default: break
        }
        announce(delivery.signal, with: payload, &step)
    }
}

extension Announcement {
    fileprivate var isTransfer: Bool {
        if case .transfer = payload { true } else { false }
    }

    fileprivate var isScheduled: Bool {
        if case .scheduled = payload { true } else { false }
    }
}
