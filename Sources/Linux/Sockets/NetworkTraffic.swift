import Glibc

/// How much some processes have sent and received so far over TCP connections that were used a moment ago, and over
/// UDP, and so by QUIC, from now on.
public struct NetworkTraffic: Sendable {
    /// Bytes by the socket's inode, of TCP.
    private let bytes: Tally<UInt32>
    /// nil if the processes have no socket of UDP, or if it is not counted.
    private let datagrams: DatagramCount?
    /// Whether the kernel's lists of sockets were read to their ends. If not, there may be more traffic.
    public let isWhole: Bool

    /// A connection that was not used for this many milliseconds is idle.
    private static let recent: UInt32 = 2_000

    /// Whether no connection of the processes was used, and no socket is counted.
    public var isEmpty: Bool { bytes.isEmpty && datagrams == nil }

    /// No traffic.
    public init() { (bytes, datagrams, isWhole) = (Tally(), nil, true) }

    /// Processes that are gone, in another network namespace, or out of our reach count as having no traffic.
    ///
    /// - Parameters:
    ///   - owner: the user whose sockets count.
    ///   - counter: begins to count the bytes over UDP; nil: they do not count.
    ///   - rest: called repeatedly.
    public init(
        of processes: some Sequence<Int32>, owner: UInt32, proc: Proc = Proc(),
        handed: HandedOver = HandedOver(), counter: DatagramCounter? = nil, rest: () -> Void = {}
    ) {
        self.init(
            of: processes, owner: owner, proc: proc, handed: handed, counter: counter, rest: rest,
            atMost: SocketDiagnosis.mostOfMachine)
    }

    /// - Parameter most: the most of the machine's sockets of each kind that are examined, so that no caller waits for
    ///   long.
    init(
        of processes: some Sequence<Int32>, owner: UInt32, proc: Proc = Proc(),
        handed: HandedOver = HandedOver(), counter: DatagramCounter? = nil, rest: () -> Void = {},
        atMost most: Int
    ) {
        let time = Clock.monotonicMicroseconds
        var isWhole = true
        let used = Self.used(owner, handed, rest, most, &isWhole)
        var sockets: [UInt32: UInt64] = [:]
        if let counter, counter.open() { sockets = Self.datagrams(owner, handed, rest, most, &isWhole) }
        self.isWhole = isWhole
        guard !used.isEmpty || !sockets.isEmpty else {
            (bytes, datagrams) = (Tally(), nil)
            return
        }
        let own = proc.sockets(of: processes, handed, rest: rest).holders
        bytes = Tally(used.filter { own[$0.key] != nil }, at: time)
        datagrams = counter?.begin(sockets.filter { own[$0.key] != nil }.values, of: owner)
    }

    /// The traffic of one user's sockets.
    private static func used(
        _ owner: UInt32, _ handed: HandedOver, _ rest: () -> Void, _ most: Int, _ isWhole: inout Bool
    ) -> [UInt32: UInt64] {
        var found: [UInt32: UInt64] = [:]
        list(atMost: most, &isWhole) { (family, mayGoOn) throws(KernelFailure) in
            try SocketDiagnosis(handed).askConnections(family) { connection in
                if connection.owner == owner, connection.idle < recent {
                    found[connection.inode] = connection.bytes
                }
                rest()
                return mayGoOn()
            }
        }
        return found
    }

    /// The cookies of one user's sockets of UDP, by inode.
    private static func datagrams(
        _ owner: UInt32, _ handed: HandedOver, _ rest: () -> Void, _ most: Int, _ isWhole: inout Bool
    ) -> [UInt32: UInt64] {
        var found: [UInt32: UInt64] = [:]
        list(atMost: most, &isWhole) { (family, mayGoOn) throws(KernelFailure) in
            try SocketDiagnosis(handed).askDatagrams(family) { socket in
                if socket.owner == owner { found[socket.inode] = socket.cookie }
                rest()
                return mayGoOn()
            }
        }
        return found
    }

    /// Lists the sockets of both families. `isWhole` becomes false if there are more than may be examined, or if there
    /// was no room for the list. A kernel that does not list such sockets, or not for us, counts as having none.
    private static func list(
        atMost most: Int, _ isWhole: inout Bool,
        _ ask: (_ family: Int32, _ mayGoOn: () -> Bool) throws(KernelFailure) -> Void
    ) {
        var seen = 0
        for family in [AF_INET, AF_INET6] {
            do throws(KernelFailure) {
                try ask(family) {
                    seen += 1
                    return seen < most
                }
            } catch {
                if lacks.contains(error.errno) { isWhole = false }
            }
        }
        if seen >= most { isWhole = false }
    }

    private static let lacks = [EAGAIN, EBUSY, EINTR, EMFILE, EMSGSIZE, ENFILE, ENOBUFS, ENOMEM]

    /// Bytes per second since an earlier look, over the connections that both looks have seen, and over the sockets of
    /// UDP that the earlier look has seen.
    public func rate(since earlier: NetworkTraffic) -> UInt64 {
        UInt64(bytes.rate(since: earlier.bytes)) + (earlier.datagrams?.rate ?? 0)
    }
}
