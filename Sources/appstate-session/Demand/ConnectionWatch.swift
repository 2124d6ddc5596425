import AppStateBus
import Glibc
import Linux
import Systemd

/// Tells that somebody connects to a local socket (unix(7)) on which a suspended application listens.
///
/// The kernel tells whoever polls the socket, so the watch holds a copy of it while the application is suspended. It looks
/// for sockets, and closes copies, on a thread of its own: an application can make either take as long as it likes.
final class ConnectionWatch {
    private let loop: EventLoop
    private let journal: Journal
    private let needed: (_ pid: Int32) -> Void
    private let proc = Proc()
    private let worker: Worker<Int32, Found>
    private var source: Source?
    /// By the main process; nil: its sockets are being looked for.
    private var watched: [Int32: Watched?] = [:]
    /// On what somebody waits for a second time: the application has run since, and has not accepted. It need not run for
    /// that again.
    private var ignored: [Int32: Set<UInt32>] = [:]
    private var registered: Set<Int32> = []
    /// Those whose look has failed: they are looked at again.
    private var failed: Set<Int32> = []
    private var retry: Timer?

    private struct Watched {
        let sockets: [ListeningSocket]
        let sources: [Source]
    }

    /// Those of one look; empty where copies were closed.
    private struct Found: Sendable {
        var sockets: [ListeningSocket] = []
        var failure: KernelFailure?
    }

    /// The most of one application, and of all.
    private static let mostSockets = 16
    private static let mostOfAll = 128
    /// Looks and closings that wait: as many as there may be applications of one user.
    private static let mostJobs = 2_048
    /// Until a look that has failed is tried again, microseconds.
    private static let retryDelay: UInt64 = 1_000_000

    /// - Parameter needed: gets the main process of the application. That is not watched any longer then, until it is
    ///   suspended anew.
    init(loop: EventLoop, journal: Journal, needed: @escaping (_ pid: Int32) -> Void) throws {
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

    private func discard(_ sockets: [ListeningSocket]) {
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
                    sockets: try ListeningSocket.of(pids.sorted(), atMost: Self.mostSockets, proc: proc))
            } catch {
                return Found(failure: error)
            }
        }
        if submission == .accepted { watched[pid] = .some(nil) } else { fail(pid, "\(submission)") }
    }

    private func fail(_ pid: Int32, _ why: String) {
        journal.log(.debug, "what process \(pid) listens on is looked for again: \(why)")
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

    private func watch(_ pid: Int32, _ sockets: [ListeningSocket]) {
        let held = watched.values.reduce(0) { $0 + ($1?.sockets.count ?? 0) }
        let full = Set(sockets.filter(\.isReadable).map(\.inode))
        // What it has accepted from meanwhile counts again.
        let former = ignored[pid]?.intersection(full) ?? []
        ignored[pid] = former.isEmpty ? nil : former
        let kept = Array(sockets.filter { !former.contains($0.inode) }.prefix(max(Self.mostOfAll - held, 0)))
        let inodes = Set(kept.map(\.inode))
        discard(sockets.filter { !inodes.contains($0.inode) })
        let sources = kept.compactMap { socket in
            try? loop.watch(socket.descriptor) { [unowned self] _ in connected(pid, socket.inode) }
        }
        watched[pid] = Watched(sockets: kept, sources: sources)
    }

    private func connected(_ pid: Int32, _ inode: UInt32) {
        guard case let watch?? = watched[pid] else { return }
        drop(watch)
        // Until it is suspended anew.
        watched[pid] = Watched(sockets: [], sources: [])
        ignored[pid, default: []].insert(inode)
        needed(pid)
    }
}
