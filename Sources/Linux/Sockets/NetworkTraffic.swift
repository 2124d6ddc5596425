import Glibc

/// What some processes have sent and received so far over TCP connections that were used a moment ago.
///
/// Of UDP, and so of QUIC, the kernel counts nothing per socket.
public struct NetworkTraffic: Sendable, Equatable {
    /// By the socket's inode.
    private let bytes: [UInt32: UInt64]
    /// CLOCK_MONOTONIC, in microseconds.
    private let time: UInt64

    /// A connection that was not used for so many milliseconds is at rest.
    private static let recent: UInt32 = 2_000

    /// Whether none of their connections was used.
    public var isEmpty: Bool { bytes.isEmpty }

    /// Nothing.
    public init() { (bytes, time) = ([:], 0) }

    /// Processes that are gone, in another network namespace, or out of our reach have none.
    ///
    /// - Parameters:
    ///   - owner: whose sockets count.
    ///   - rest: called again and again.
    public init(
        of processes: some Sequence<Int32>, owner: UInt32, proc: Proc = Proc(),
        handed: HandedOver = HandedOver(), rest: () -> Void = {}
    ) {
        time = Clock.monotonicMicroseconds
        guard let used = try? Self.used(owner, handed, rest), !used.isEmpty else {
            bytes = [:]
            return
        }
        let own = proc.sockets(of: processes, handed, rest: rest)
        bytes = used.filter { own[$0.key] != nil }
    }

    /// Those of one user, as far as they are among so many of the machine's that nobody waits for long.
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

    /// Bytes per second since an earlier look, over the connections that both have seen.
    public func rate(since earlier: NetworkTraffic) -> UInt64 {
        guard time > earlier.time else { return 0 }
        var sum: UInt64 = 0
        for (inode, now) in bytes {
            if let before = earlier.bytes[inode], now > before { sum += now - before }
        }
        return UInt64(Double(sum) * 1_000_000 / Double(time - earlier.time))
    }
}
