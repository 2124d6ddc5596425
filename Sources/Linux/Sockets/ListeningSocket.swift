import Glibc

/// A copy of a descriptor of a local socket (unix(7)) on which another process listens: readable as long as a connection
/// waits to be accepted. While it is open the socket is, whatever becomes of that process.
public final class ListeningSocket: Sendable {
    /// To be polled. Open while this value lives.
    public let descriptor: Int32

    private init(_ descriptor: consuming Descriptor) { self.descriptor = descriptor.release() }

    deinit { close(descriptor) }

    /// Those of some processes, each once, as of one moment in parts only. Processes that are gone, in another network
    /// namespace, or out of our reach have none.
    ///
    /// - Parameters:
    ///   - limit: the most of them.
    ///   - files: the most open files that are looked at.
    public static func of(
        _ processes: some Sequence<Int32>, atMost limit: Int, files: Int = UnixSockets.mostDescriptors,
        proc: Proc = Proc(), handed: HandedOver = HandedOver()
    ) -> [ListeningSocket] {
        guard var listening = try? listening(handed), !listening.isEmpty else { return [] }
        var left = files
        var found: [ListeningSocket] = []
        for pid in processes {
            // Held first: its number cannot be another's from here on.
            guard let process = try? PidFD(pid: pid), (try? proc.sharesNetwork(with: pid, handed)) == true,
                let numbers = try? proc.sockets(of: pid, left: &left).numbers
            else { continue }
            for (inode, number) in numbers where listening.contains(inode) {
                guard found.count < limit else { return found }
                guard let copy = try? process.copy(of: number), Self.inode(of: copy.rawValue) == inode else {
                    continue
                }
                listening.remove(inode)
                found.append(ListeningSocket(copy))
            }
            if left <= 0 { break }
        }
        return found
    }

    /// The inodes of all on which somebody listens.
    private static func listening(_ handed: HandedOver) throws(KernelFailure) -> Set<UInt32> {
        var found: Set<UInt32> = []
        var seen = 0
        try SocketDiagnosis(handed).ask(.unread) { report in
            seen += 1
            if report.isListening, report.isConnectionOriented { found.insert(report.inode) }
            return seen <= UnixSockets.mostSockets
        }
        return found
    }

    private static func inode(of descriptor: Int32) -> UInt32? {
        var information = stat()
        return fstat(descriptor, &information) == 0 ? UInt32(truncatingIfNeeded: information.st_ino) : nil
    }
}
