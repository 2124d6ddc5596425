import LifeCycle

/// Counts the bytes of our signals that may wait in the bus because connections do not read them.
///
/// dbus-daemon stops reading from a client that has 127 MiB in transit (dbus-daemon(1), `max_incoming_bytes`),
/// regardless of the recipients. A connection that does not read is sent a limited number of signals
/// (`Connection.Flow`), but each may carry 64 KiB: without a limit for each user, four delegates of one user would
/// silence the daemon for all users. Everything that a connection was sent before a ping counts until it has answered
/// that ping.
struct UnreadSignals {
    private struct Account {
        let user: UInt32
        /// Since the last ping.
        var sent = 0
        /// Before the ping that it has not answered yet.
        var pinged = 0

        var unread: Int { sent + pinged }
    }

    /// The most for each user, ...
    private static let most = 16 << 20
    /// ... and for all users together, because one person may have many user ids, ...
    private static let mostOfAll = 48 << 20
    /// ... except that each user may always have this much.
    private static let least = 1 << 20
    /// A connection for which less than this waits is sent more in any case.
    private static let leastOfConnection = 64 << 10
    /// After this much, a connection is pinged; ...
    private static let window = 128 << 10
    /// ... where half of a limit is reached, after this much: a connection that reads must not reach the limit.
    private static let smallWindow = 16 << 10
    /// What a message has besides its arguments, roughly.
    private static let header = 256

    private var accounts: [ConnectionName: Account] = [:]
    private var sums: [UInt32: Int] = [:]
    private var all = 0

    /// Whether a connection is sent nothing more until it has read.
    func isFull(_ connection: Connection) -> Bool {
        hasReached(1, connection.user)
            && (accounts[connection.name]?.unread ?? 0) >= Self.leastOfConnection
    }

    /// Whether a connection was sent so much that it must show that it reads.
    func isPingDue(of connection: Connection) -> Bool {
        let sent = accounts[connection.name]?.sent ?? 0
        return sent >= Self.window || sent >= Self.smallWindow && hasReached(2, connection.user)
    }

    /// Whether this user has reached a limit, or this part of it.
    private func hasReached(_ part: Int, _ user: UInt32) -> Bool {
        let sum = sums[user, default: 0]
        return sum >= Self.most / part || all >= Self.mostOfAll / part && sum >= Self.least / part
    }

    /// - Parameter bytes: of the signal's arguments.
    mutating func charge(_ bytes: Int, to connection: Connection) {
        let size = bytes + Self.header
        accounts[connection.name, default: Account(user: connection.user)].sent += size
        add(size, to: connection.user)
    }

    /// The connection was sent a ping.
    mutating func pinged(_ name: ConnectionName) {
        guard let account = accounts[name] else { return }
        accounts[name] = Account(user: account.user, sent: 0, pinged: account.unread)
    }

    /// The connection has answered the ping.
    mutating func answered(_ name: ConnectionName) {
        guard let account = accounts[name] else { return }
        accounts[name]?.pinged = 0
        add(-account.pinged, to: account.user)
    }

    /// What waited for a connection that has left is gone.
    mutating func departed(_ name: ConnectionName) {
        guard let account = accounts.removeValue(forKey: name) else { return }
        add(-account.unread, to: account.user)
    }

    private mutating func add(_ bytes: Int, to user: UInt32) {
        all += bytes
        let sum = sums[user, default: 0] + bytes
        sums[user] = sum > 0 ? sum : nil
    }
}
