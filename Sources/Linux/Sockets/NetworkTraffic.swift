import Glibc

/// How much some processes have sent and received so far over TCP connections.
public struct NetworkTraffic: Sendable {
    /// Bytes by the socket's inode.
    private let bytes: Tally<UInt32>
    /// Whether the kernel's list of connections was read to its end. If not, there may be more traffic.
    public let isWhole: Bool

    /// Whether a connection of the processes was used a moment ago.
    public let isInUse: Bool

    /// Whether the processes have received something a few seconds ago and have sent nothing since: an answer may be due.
    public let owesAnswer: Bool

    /// A connection that was not used for this many milliseconds is idle.
    private static let recent: UInt32 = 2_000
    /// No answer is expected any more after this many milliseconds.
    private static let patience: UInt32 = 5_000

    /// - Parameters:
    ///   - files: what the processes have open.
    ///   - owner: the user whose sockets count.
    public init(of files: OpenFiles, owner: UInt32, handed: HandedOver = HandedOver()) {
        let time = Clock.monotonicMicroseconds
        var used: Set<UInt32> = []
        var owing: Set<UInt32> = []
        let all: [UInt32: UInt64]
        (all, isWhole) = Self.bytes(owner, handed) {
            if min($0.sent, $0.received) < Self.recent { used.insert($0.inode) }
            if $0.received < min($0.sent, Self.patience) { owing.insert($0.inode) }
            return $0.bytes
        }
        let own = files.sockets
        bytes = Tally(all.filter { own[$0.key] != nil }, at: time)
        isInUse = used.contains { own[$0] != nil }
        owesAnswer = owing.contains { own[$0] != nil }
    }

    /// Whether bytes to read wait in a TCP connection of the processes, which count as above, or connections to accept.
    /// Also true if there was no room for the kernel's list.
    public static func isUnread(
        by processes: some Sequence<Int32>, owner: UInt32, proc: Proc = Proc(),
        handed: HandedOver = HandedOver()
    ) -> Bool {
        let waiting = bytes(owner, handed, isAll: true) { $0.waiting > 0 ? UInt64($0.waiting) : nil }
        if waiting.bytes.isEmpty || !waiting.isWhole { return !waiting.isWhole }
        let own = OpenFiles(of: processes, proc: proc, handed: handed).sockets
        return waiting.bytes.keys.contains { own[$0] != nil }
    }

    /// The bytes of one user's connections that have any, by the socket's inode, and whether the list is whole: it is not
    /// if there was no room for it. A kernel that does not list them, or not for us, counts as having none.
    ///
    /// - Parameter isAll: sockets that listen count as well.
    private static func bytes(
        _ owner: UInt32, _ handed: HandedOver, isAll: Bool = false,
        _ count: (SocketDiagnosis.Connection) -> UInt64?
    ) -> (bytes: [UInt32: UInt64], isWhole: Bool) {
        var found: [UInt32: UInt64] = [:]
        var isWhole = true
        for family in [AF_INET, AF_INET6] {
            do throws(KernelFailure) {
                for listening in isAll ? [false, true] : [false] {
                    try SocketDiagnosis(handed).askConnections(family, listening: listening) { connection in
                        if connection.owner == owner, let bytes = count(connection) {
                            found[connection.inode] = bytes
                        }
                        return true
                    }
                }
            } catch {
                if lacks.contains(error.errno) { isWhole = false }
            }
        }
        return (found, isWhole)
    }

    private static let lacks = [EAGAIN, EBUSY, EINTR, EMFILE, EMSGSIZE, ENFILE, ENOBUFS, ENOMEM]

    /// Bytes per second since an earlier measurement, over all connections that there are now.
    ///
    /// - Parameter span: microseconds. What was transferred in a shorter time counts for this time.
    public func rate(since earlier: NetworkTraffic, over span: UInt64 = 0) -> UInt64 {
        UInt64(bytes.rate(since: earlier.bytes, over: span))
    }
}
