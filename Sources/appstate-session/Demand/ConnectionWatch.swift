import AppStateBus
import AppStateContract
import Glibc
import Linux
import Systemd
import Windows

/// Reports connections to local sockets (unix(7)) on which a suspended application listens, and requests to it by its
/// display server and its session manager, such as to close a window.
///
/// The kernel notifies whoever polls a socket, so the watch holds a copy of each while the application is suspended. It
/// looks for sockets, and closes copies, on a thread of its own: an application can make either take as long as it likes.
final class ConnectionWatch {
    private let loop: EventLoop
    private let journal: Journal
    private let needed: (_ pid: Int32, _ reason: DemandReason) -> Void
    private let proc = Proc()
    private let worker: Worker<Int32, Found>
    private var source: Source?
    /// By the main process; nil: its sockets are being looked for.
    private var watched: [Int32: Watched?] = [:]
    /// The sockets on which something has waited before. The application has run since and has left it there, so it need
    /// not run for that again.
    private var ignored: [Int32: Set<UInt32>] = [:]
    private var registered: Set<Int32> = []
    /// Those whose look has failed: they are looked at again.
    private var failed: Set<Int32> = []
    private var retry: Timer?

    private struct Watched {
        let sockets: [SocketCopy]
        let sources: [Source]
    }

    /// The sockets that one look found; none where copies were closed.
    private struct Found: Sendable {
        var sockets: [SocketCopy] = []
        var failure: KernelFailure?
    }

    /// The most sockets of one application, and of all.
    private static let mostSockets = 16
    private static let mostOfAll = 256
    /// The most that is looked at of what a display server has sent, in bytes: as much as the kernel lets wait by default
    /// (net.core.wmem_default).
    private static let mostUnread = 212_992
    /// The most arrivals of one suspension that are looked at: a server that sends more does not notice that its client
    /// is suspended.
    private static let mostArrivals = 1_024
    /// The most looks and closings that wait: as many as there may be applications of one user.
    private static let mostJobs = 2_048
    /// Until a look that has failed is tried again, microseconds.
    private static let retryDelay: UInt64 = 1_000_000

    /// - Parameter needed: gets the main process of the application. The application is not watched any longer then,
    ///   until it is suspended anew.
    init(
        loop: EventLoop, journal: Journal, needed: @escaping (_ pid: Int32, _ reason: DemandReason) -> Void
    ) throws {
        self.loop = loop
        self.journal = journal
        self.needed = needed
        worker = try Worker(name: "connections", limit: Self.mostJobs)
        source = try loop.watch(worker.descriptor) { [unowned self] _ in takeResults() }
        retry = try loop.timer { [unowned self] in lookAgain() }
    }

    deinit {
        for case let watch? in watched.values { drop(watch) }
    }

    /// Watches applications that are suspended, each known by its main process.
    ///
    /// - Parameter registered: the main processes of all applications: there another one begins.
    func watch(_ suspended: Set<Int32>, among registered: Set<Int32>) {
        self.registered = registered
        ignored = ignored.filter { registered.contains($0.key) }
        failed.formIntersection(suspended)
        for pid in watched.keys where !suspended.contains(pid) { leave(pid) }
        for pid in suspended where watched[pid] == nil { look(pid) }
    }

    private func leave(_ pid: Int32) {
        if case let watch?? = watched.removeValue(forKey: pid) { drop(watch) }
    }

    private func drop(_ watch: Watched) {
        for source in watch.sources { source.cancel() }
        discard(watch.sockets)
    }

    private func discard(_ sockets: [SocketCopy]) {
        if sockets.isEmpty { return }
        let submission = worker.submit(0) {
            for socket in sockets { socket.close() }
            return Found()
        }
        // Rather a descriptor that stays than a loop that waits.
        if submission != .accepted { journal.log(.debug, "copies of sockets are not closed: \(submission)") }
    }

    private func look(_ pid: Int32) {
        let foreign = registered.subtracting([pid])
        let proc = proc
        let submission = worker.submit(pid) {
            guard let main = try? proc.identity(of: pid) else { return Found() }
            let members = Extent.members(of: main, proc: proc) { foreign.contains($0.pid) }
            var pids = Set(members.map(\.pid))
            if let hierarchy = try? UnifiedHierarchy.find(proc: proc),
                let unit = (try? Cgroup.of(pid, in: hierarchy, proc: proc))?.applicationUnit
            {
                pids.formUnion((try? unit.processes()) ?? [])
            }
            do throws(KernelFailure) {
                return Found(
                    sockets: try SocketCopy.of(
                        pids.sorted(), atMost: Self.mostSockets,
                        connectedTo: { UnreadEvents(service: $0) != nil }, proc: proc))
            } catch {
                return Found(failure: error)
            }
        }
        if submission == .accepted { watched[pid] = .some(nil) } else { fail(pid, "\(submission)") }
    }

    private func fail(_ pid: Int32, _ why: String) {
        journal.log(.debug, "the sockets of process \(pid) are looked for again: \(why)")
        if failed.isEmpty { retry?.arm(at: loop.now + Self.retryDelay) }
        failed.insert(pid)
    }

    private func lookAgain() {
        let pids = failed
        failed = []
        for pid in pids where watched[pid] == nil { look(pid) }
    }

    private func takeResults() {
        for finished in worker.takeResults() where finished.key > 0 {
            let (pid, sockets) = (finished.key, finished.value.sockets)
            // It runs again, and may have been suspended once more: then another look is on its way.
            guard case .some(nil) = watched[pid] else {
                discard(sockets)
                continue
            }
            if let failure = finished.value.failure {
                watched.removeValue(forKey: pid)
                fail(pid, "\(failure)")
            } else {
                watch(pid, sockets)
            }
        }
    }

    private func watch(_ pid: Int32, _ sockets: [SocketCopy]) {
        let held = watched.values.reduce(0) { $0 + ($1?.sockets.count ?? 0) }
        let waiting = Set(sockets.filter { reason(of: $0) != nil }.map(\.inode))
        // What it has accepted from meanwhile counts again.
        let former = ignored[pid]?.intersection(waiting) ?? []
        ignored[pid] = former.isEmpty ? nil : former
        let kept = Array(sockets.filter { !former.contains($0.inode) }.prefix(max(Self.mostOfAll - held, 0)))
        let inodes = Set(kept.map(\.inode))
        discard(sockets.filter { !inodes.contains($0.inode) })
        watched[pid] = Watched(sockets: kept, sources: kept.compactMap { follow($0, of: pid) })
    }

    /// The need that waits in a socket.
    private func reason(of socket: SocketCopy) -> DemandReason? {
        switch socket.role {
        case .listening: return socket.isReadable ? .connection : nil
        case .connected(to: let service):
            guard let events = UnreadEvents(service: service) else { return nil }
            guard socket.peek(atMost: Self.mostUnread, events.haveRequest) else { return nil }
            return events == .xsmp ? .sessionEnd : .close
        }
    }

    private func follow(_ socket: SocketCopy, of pid: Int32) -> Source? {
        switch socket.role {
        case .listening:
            return try? loop.watch(socket.descriptor) { [unowned self] _ in
                found(.connection, in: socket, of: pid)
            }
        case .connected:
            // Most of what a display server sends is no request, and stays unread until the application runs.
            var left = Self.mostArrivals
            return try? loop.watch(socket.descriptor, for: [.readable, .edgeTriggered]) { [unowned self] _ in
                left -= 1
                if left >= 0, let reason = reason(of: socket) { found(reason, in: socket, of: pid) }
            }
        }
    }

    private func found(_ reason: DemandReason, in socket: SocketCopy, of pid: Int32) {
        guard case let watch?? = watched[pid] else { return }
        drop(watch)
        // Until it is suspended anew.
        watched[pid] = Watched(sockets: [], sources: [])
        ignored[pid, default: []].insert(socket.inode)
        needed(pid, reason)
    }
}
