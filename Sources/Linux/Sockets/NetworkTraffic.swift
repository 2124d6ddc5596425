import Glibc

/// How much some processes have sent and received so far over TCP connections that were used a moment ago, and over
/// UDP, and so by QUIC, from now on.
public struct NetworkTraffic: Sendable {
    /// Bytes by the socket's inode, of TCP.
    private let bytes: Tally<UInt32>
    /// nil if the processes have no socket of UDP, or if it is not counted.
    private let datagrams: DatagramCount?

    /// A connection that was not used for this many milliseconds is idle.
    private static let recent: UInt32 = 2_000

    /// Whether no connection of the processes was used, and no socket is counted.
    public var isEmpty: Bool { bytes.isEmpty && datagrams == nil }

    /// No traffic.
    public init() { (bytes, datagrams) = (Tally(), nil) }

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
        let time = Clock.monotonicMicroseconds
        let used = (try? Self.used(owner, handed, rest)) ?? [:]
        var sockets: [UInt32: UInt64] = [:]
        if let counter, counter.open() { sockets = (try? Self.datagrams(owner, handed, rest)) ?? [:] }
        guard !used.isEmpty || !sockets.isEmpty else {
            (bytes, datagrams) = (Tally(), nil)
            return
        }
        let own = proc.sockets(of: processes, handed, rest: rest).holders
        bytes = Tally(used.filter { own[$0.key] != nil }, at: time)
        datagrams = counter?.begin(sockets.filter { own[$0.key] != nil }.values, of: owner)
    }

    /// The traffic of one user's sockets. Looks at a limited number of the machine's sockets, so that no caller waits
    /// for long.
    private static func used(
        _ owner: UInt32, _ handed: HandedOver, _ rest: () -> Void
    ) throws(KernelFailure) -> [UInt32: UInt64] {
        var found: [UInt32: UInt64] = [:]
        var seen = 0
        for family in [AF_INET, AF_INET6] {
            try SocketDiagnosis(handed).askConnections(family) { connection in
                seen += 1
                if connection.owner == owner, connection.idle < recent {
                    found[connection.inode] = connection.bytes
                }
                rest()
                return seen < SocketDiagnosis.mostOfMachine
            }
        }
        return found
    }

    /// The cookies of one user's sockets of UDP, by inode. Looks at a limited number as well.
    private static func datagrams(
        _ owner: UInt32, _ handed: HandedOver, _ rest: () -> Void
    ) throws(KernelFailure) -> [UInt32: UInt64] {
        var found: [UInt32: UInt64] = [:]
        var seen = 0
        for family in [AF_INET, AF_INET6] {
            try SocketDiagnosis(handed).askDatagrams(family) { socket in
                seen += 1
                if socket.owner == owner { found[socket.inode] = socket.cookie }
                rest()
                return seen < SocketDiagnosis.mostOfMachine
            }
        }
        return found
    }

    /// Bytes per second since an earlier look, over the connections that both looks have seen, and over the sockets of
    /// UDP that the earlier look has seen.
    public func rate(since earlier: NetworkTraffic) -> UInt64 {
        UInt64(bytes.rate(since: earlier.bytes)) + (earlier.datagrams?.rate ?? 0)
    }
}
