import AppStateBus
import AppStateContract
import LifeCycle
import Linux

/// Answers that name every application that the caller may see: GetManagedObjects and ListApplications.
///
/// Ten thousand applications take longer to write than other callers should wait, so an answer is written in slices,
/// one in each turn of the loop. The waiting answers are taken user by user, and only one at a time occupies memory.
///
/// Changes in the meantime are announced again after the answer, because the answer may contain the earlier
/// state and supersedes signals that were sent before it.
final class Listings {
    enum Kind {
        /// `a{oa{sa{sv}}}`
        case objects
        /// `a(osuus)`
        case rows

        var element: String {
            switch self {
            case .objects: "{oa{sa{sv}}}"
            case .rows: "(osuus)"
            }
        }
    }

    /// dbus-daemon disconnects a client that sends more than 32 MiB, and each byte is in our memory until it is sent.
    static let mostBytes = 24 << 20
    /// The most answers of one user that wait.
    private static let mostOfUser = 64
    /// The length of a slice. Other callers wait no longer than for about ten calls of their own.
    private static let slice: Microseconds = 500
    /// Up to this many rows are written at one moment, however long that takes: a client that follows StateChanged
    /// starts from them. A sandboxed client follows nothing, and each of its rows is examined.
    private static let mostRowsAtOnce = 512
    /// If more applications than this have changed while an answer was written, its reader gets `Resync`.
    private static let mostCaughtUp = 64
    /// Nothing more is written while the bus has not accepted the previous data.
    private static let mostQueued: UInt64 = 16
    private static let pause: Microseconds = 2_000
    private final class Listing {
        let kind: Kind
        let call: PendingCall
        let connection: Connection
        var draft: Draft?

        init(_ kind: Kind, _ call: PendingCall, _ connection: Connection) {
            self.kind = kind
            self.call = call
            self.connection = connection
        }
    }

    /// An answer that is being written.
    private final class Draft {
        let reply: Message
        var numbers: [ApplicationNumber]
        var next = 0
        var bytes = 0
        /// The earlier contents of `numbers`. Numbers wrap, so a new number may be less than all of these.
        var passed: Set<ApplicationNumber> = []

        init(_ reply: consuming Message, _ numbers: [ApplicationNumber]) {
            self.reply = reply
            self.numbers = numbers
        }
    }

    private let bus: Bus
    private let announcer: Announcer
    private let core: Core
    private let share: WorkShare
    private let unread: UnreadAnswers
    private let table: ApplicationTable
    /// Names applications without examining them.
    private let possiblyVisible: (Connection) -> [ApplicationNumber]
    private let maySee: (Application, Connection) -> Bool
    /// Calls `turn`.
    var timer: Timer?
    /// The first answer is being written.
    private var queue: [Listing] = []
    /// The changes since the first answer was begun.
    private var changes: [ApplicationNumber: Announcer.Change] = [:]

    init(
        bus: Bus, announcer: Announcer, core: Core, share: WorkShare, unread: UnreadAnswers,
        table: ApplicationTable,
        possiblyVisible: @escaping (Connection) -> [ApplicationNumber],
        maySee: @escaping (Application, Connection) -> Bool
    ) {
        self.bus = bus
        self.announcer = announcer
        self.core = core
        self.share = share
        self.unread = unread
        self.table = table
        self.possiblyVisible = possiblyVisible
        self.maySee = maySee
        announcer.noted = { [weak self] in self?.note($0, $1) }
    }

    /// Answers the call, at once if possible, otherwise soon.
    func answer(_ kind: Kind, _ call: PendingCall, _ connection: Connection) {
        guard call.message.expectsReply else { return }
        let listing = Listing(kind, call, connection)
        guard queue.count(where: { $0.connection.user == connection.user }) < Self.mostOfUser else {
            call.fail(
                MethodError(
                    .limitsExceeded,
                    "More than \(Self.mostOfUser) lists of applications are being written for user \(connection.user)"
                ))
            return
        }
        begin(listing)
        if advance(listing) { return }
        // Only one answer at a time is kept half written: an answer behind others is begun again.
        if !queue.isEmpty { listing.draft = nil }
        queue.append(listing)
        if queue.count == 1 { rearm(after: 0) }
    }

    /// Drops the answers for a connection that has left.
    func departed(_ connection: ConnectionName) {
        let first = queue.first
        queue.removeAll { $0.connection.name == connection }
        if queue.first !== first { changes = [:] }
    }

    // MARK: Turns

    func turn() {
        guard let listing = next() else { return }
        let start = Clock.monotonicMicroseconds
        defer {
            let end = Clock.monotonicMicroseconds
            share.spend(end - start, of: listing.connection.user, at: end)
        }
        if listing.draft == nil {
            guard bus.queuedMessages <= Self.mostQueued else { return rearm(after: Self.pause) }
            guard let isAdmitted = unread.admitsLongAnswer(to: listing.connection.user) else {
                // The user may keep calling, so that the bus must be asked again and again.
                letOthersGoFirst(before: listing.connection.user)
                return rearm(after: Self.pause)
            }
            changes = [:]
            if isAdmitted { begin(listing) } else { refuse(listing) }
        }
        if advance(listing) {
            queue.removeFirst()
            let changed = changes
            changes = [:]
            if listing.kind == .objects { catchUp(listing.connection, changed) }
            letOthersGoFirst(before: listing.connection.user)
        }
        if !queue.isEmpty { rearm(after: 0) }
    }

    /// The first answer of a user who has a share of the time left. If there is none, the next turn comes
    /// when some user has one. Only one answer at a time occupies memory, so an answer that was begun for
    /// another user is begun again.
    private func next() -> Listing? {
        let index: Int
        switch share.turn(in: queue, at: Clock.monotonicMicroseconds, of: \.connection.user) {
        case .now(let found): index = found
        case .later(let due):
            timer?.arm(at: due)
            return nil
        case .nobody: return nil
        }
        guard index > 0 else { return queue[0] }
        queue[0].draft = nil
        changes = [:]
        queue.insert(queue.remove(at: index), at: 0)
        return queue[0]
    }

    /// A user who just had a turn, or cannot use it yet, waits for the other users.
    private func letOthersGoFirst(before user: UInt32) {
        guard let index = queue.firstIndex(where: { $0.connection.user != user }), index > 0 else { return }
        queue.insert(queue.remove(at: index), at: 0)
    }

    private func rearm(after pause: Microseconds) {
        timer?.arm(at: Clock.monotonicMicroseconds + pause)
    }

    // MARK: Writing

    private func begin(_ listing: Listing) {
        do {
            let reply = try listing.call.newReply()
            try reply.open(.array, listing.kind.element)
            listing.draft = Draft(reply, possiblyVisible(listing.connection))
        } catch {
            listing.call.fail(MethodError(error))
        }
    }

    /// Calls that came together were admitted together, but the first answers are not read.
    private func refuse(_ listing: Listing) {
        listing.call.fail(UnreadAnswers.refusal(of: listing.connection.user))
    }

    /// Writes for the length of a slice. Returns whether the call is answered.
    private func advance(_ listing: Listing) -> Bool {
        guard let draft = listing.draft else { return true }
        let isOfOneMoment =
            listing.kind == .rows && draft.numbers.count <= Self.mostRowsAtOnce
            && !listing.connection.isSandboxed
        let end = isOfOneMoment ? .max : Clock.monotonicMicroseconds + Self.slice
        do {
            while true {
                if draft.next == draft.numbers.count {
                    draft.passed.formUnion(draft.numbers)
                    draft.numbers = possiblyVisible(listing.connection).filter { !draft.passed.contains($0) }
                    draft.next = 0
                    if draft.numbers.isEmpty { break }
                }
                try write(draft.numbers[draft.next], listing, draft)
                draft.next += 1
                if Clock.monotonicMicroseconds >= end { return false }
            }
            try draft.reply.close()
            listing.call.send(draft.reply)
            unread.chargeAnswer(of: draft.bytes, to: listing.connection)
        } catch let error as MethodError {
            listing.call.fail(error)
        } catch let failure as BusFailure {
            listing.call.fail(MethodError(failure))
        } catch {
            listing.call.fail(.failed("\(error)"))
        }
        listing.draft = nil
        return true
    }

    private func write(_ number: ApplicationNumber, _ listing: Listing, _ draft: Draft) throws {
        // The application may have ended in the meantime.
        guard let application = core.application(number), maySee(application, listing.connection) else {
            return
        }
        switch listing.kind {
        case .rows:
            draft.bytes += 64 + application.id.rawValue.utf8.count
        case .objects:
            // A rough size of its properties' names and values. Only the texts that are added here can be long.
            draft.bytes += 2_048 + table.textBytes(of: application)
        }
        guard draft.bytes <= Self.mostBytes else {
            throw MethodError(
                .limitsExceeded,
                "All \(listing.kind == .rows ? "rows" : "objects") would fill more than \(Self.mostBytes) bytes: "
                    + "ListApplications names the applications, and GetAll reads one")
        }
        switch listing.kind {
        case .rows: try draft.reply.append(row: application)
        case .objects: try announcer.append(object: number, to: draft.reply)
        }
    }

    // MARK: Changes

    private func note(_ number: ApplicationNumber, _ change: Announcer.Change) {
        guard queue.first?.draft != nil else { return }
        switch (changes[number], change) {
        case (.ended?, _): break
        case (.changed(let before)?, .changed(let properties)):
            changes[number] = .changed(before.union(properties))
        default: changes[number] = change
        }
    }

    private func catchUp(_ connection: Connection, _ changes: [ApplicationNumber: Announcer.Change]) {
        guard changes.count <= Self.mostCaughtUp else { return announcer.haveReadAgain(connection) }
        for (number, change) in changes.sorted(by: { $0.key < $1.key }) {
            switch change {
            case .ended:
                announcer.sayRemoved(number, to: connection)
            case .changed(let properties):
                guard let application = core.application(number), maySee(application, connection),
                    let registered = table[number]
                else { continue }
                announcer.sayChanged(registered, properties, to: connection)
            }
        }
    }
}

extension Message {
    fileprivate borrowing func append(row application: Application) throws(BusFailure) {
        try withContainer(.struct, "osuus") {
            try append(objectPath: BusNames.path(ofApplication: application.number.rawValue))
            try append(application.id.rawValue)
            try append(UInt32(application.process.pid))
            try append(application.user)
            try append(application.state.rawValue)
        }
    }
}
