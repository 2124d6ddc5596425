import Linux

/// Which processes are connected to a service through its local socket (unix(7)), according to sock_diag(7) and the
/// processes' open files.
///
/// The result for a connection is remembered, so another query costs little as long as there is no new
/// connection. Clients in another network namespace are not found, because their connections belong to that
/// namespace. Clients whose open files we may not read (proc_pid_fd(5)) are not found either.
struct SocketClients {
    private let proc: Proc
    /// The process that holds the client's end, by the end's number; nil if it cannot be determined.
    private var holders: [UInt32: ProcessIdentity?] = [:]

    init(proc: Proc = Proc()) {
        self.proc = proc
    }

    /// The processes that are connected to one of these services, each once, the oldest first. Where several processes
    /// hold one connection because they inherited it, the oldest of them represents all.
    ///
    /// - Parameter services: as they are bound: a path, or `@` and an abstract name.
    /// - Throws: if the kernel answers nothing at all, as in `UnixSockets.haveUnread`.
    mutating func connected(to services: Set<String>) throws(KernelFailure) -> [ProcessIdentity] {
        var ends: Set<UInt32> = []
        try SocketDiagnosis().ask(.names) { report in
            // A connection that the service has accepted has the service's name.
            if !report.isListening, let name = report.name, services.contains(name), let peer = report.peer {
                ends.insert(peer)
            }
            return true
        }
        holders = holders.filter { end, holder in
            ends.contains(end) && (holder.map { isAlive($0) } ?? true)
        }
        let unknown = ends.filter { holders[$0] == nil }
        if !unknown.isEmpty { look(for: unknown) }
        return Set(holders.values.compactMap(\.self)).sorted {
            ($0.startTime, $0.pid) < ($1.startTime, $1.pid)
        }
    }

    private func isAlive(_ process: ProcessIdentity) -> Bool {
        (try? proc.identity(of: process.pid)) == process
    }

    private mutating func look(for ends: Set<UInt32>) {
        for end in ends { holders[end] = .some(nil) }
        for pid in (try? proc.processes()) ?? [] {
            // We may not read other users' open files.
            guard let sockets = try? proc.sockets(of: pid) else { continue }
            let held = ends.filter { sockets[$0] != nil }
            guard !held.isEmpty, let process = try? proc.identity(of: pid) else { continue }
            for end in held {
                if let other = holders[end] ?? nil, other.startTime <= process.startTime { continue }
                holders[end] = process
            }
        }
    }
}
