import Glibc

/// How much some processes have sent and received so far over TCP connections that were used a moment ago.
///
/// The kernel counts nothing per socket for UDP, and so for QUIC.
public struct NetworkTraffic: Sendable, Equatable {
    /// Bytes by the socket's inode.
    private let bytes: Tally<UInt32>

    /// A connection that was not used for this many milliseconds is idle.
    private static let recent: UInt32 = 2_000

    /// Whether no connection of the processes was used.
    public var isEmpty: Bool { bytes.isEmpty }

    /// No traffic.
    public init() { bytes = Tally() }

    /// Processes that are gone, in another network namespace, or out of our reach count as having no traffic.
    ///
    /// - Parameters:
    ///   - owner: the user whose sockets count.
    ///   - rest: called repeatedly.
    public init(
        of processes: some Sequence<Int32>, owner: UInt32, proc: Proc = Proc(),
        handed: HandedOver = HandedOver(), rest: () -> Void = {}
    ) {
        let time = Clock.monotonicMicroseconds
        guard let used = try? Self.used(owner, handed, rest), !used.isEmpty else {
            bytes = Tally()
            return
        }
        let own = proc.sockets(of: processes, handed, rest: rest).holders
        bytes = Tally(used.filter { own[$0.key] != nil }, at: time)
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

    /// Bytes per second since an earlier look, over the connections that both looks have seen.
    public func rate(since earlier: NetworkTraffic) -> UInt64 {
        UInt64(bytes.rate(since: earlier.bytes))
    }
}
