import AppStateBus
import AppStateContract
import Glibc
import Linux
import Systemd
import Windows

/// Reports connections to local sockets (unix(7)) on which a suspended application listens, what arrives in those that it
/// has accepted, requests to it by its display server and its session manager, such as to close a window, and by the
/// kernel, for whoever touches a file system that it serves (FUSE).
///
/// The kernel notifies whoever polls a socket, so the watch holds a copy of each while the application is suspended. It
/// looks for sockets, and closes copies, on a thread of its own: an application can make either take as long as it likes.
final class ConnectionWatch {
    private let loop: EventLoop
    private let journal: Journal
    private let needed: (_ pid: Int32, _ reason: DemandReason) -> Void
    private let full: (_ pid: Int32) -> Void
    private let timeToRun: UInt64
    private let proc = Proc()
    private let worker: Worker<Int32, Answer>
    private var source: Source?
    /// By the main process; nil: its sockets are being looked for.
    private var watched: [Int32: Watched?] = [:]
    /// The sockets on which something has waited before. The application has run since and has left it there, so it need
    /// not run for that again.
    private var ignored: [Int32: Set<SocketCopy.ID>] = [:]
    private var registered: Set<Int32> = []
    /// Those whose look has failed: they are looked at again.
    private var failed: Set<Int32> = []
    private var retry: Timer?

    private struct Watched {
        var sockets: [SocketCopy] = []
        var sources: [SocketCopy.ID: Source] = [:]
        /// The connections that are being looked at, and whether something has arrived in each meanwhile.
        var looks: [SocketCopy.ID: Bool] = [:]
        /// When the need was reported, after which only what fills up is still watched; nil: it was not.
        var reported: UInt64?
        var isFull = false
    }

    /// The result of a job.
    private enum Answer: Sendable {
        /// The sockets of an application, and in which of them something waits that it is needed for.
        case found([SocketCopy], waiting: [SocketCopy.ID: DemandReason])
        case failed(KernelFailure)
        /// What waits in a connection.
        case waits(SocketCopy.ID, DemandReason?)
        case closed
    }

    /// What has a limit of its own.
    private enum Kind: CaseIterable {
        case connected
        case listening
        case accepted

        init(of socket: SocketCopy) {
            self =
                switch socket.role {
                case .connected, .fuse: .connected
                case .listening: .listening
                case .accepted: .accepted
                }
        }
    }

    /// The most sockets of one application; the most of each kind of all.
    private static let mostSockets = 16
    private static let mostOfAll = 128
    /// The most that is looked at of what a server has sent, in bytes: as much as the kernel lets wait by default
    /// (net.core.wmem_default).
    private static let mostUnread = 212_992
    /// The most looks and closings that wait: as many as there may be applications of one user.
    private static let mostJobs = 2_048
    /// Until a look that has failed is tried again, microseconds.
    private static let retryDelay: UInt64 = 1_000_000

    /// - Parameters:
    ///   - needed: gets the main process of the application. No other need is reported then until the application is
    ///     suspended anew.
    ///   - full: gets the main process of an application that the display server may soon cut off, because it is still
    ///     suspended after the need was reported, and more and more waits for it.
    ///   - timeToRun: until an application runs for which a need was reported, unless it is to stay suspended;
    ///     microseconds.
    init(
        loop: EventLoop, journal: Journal, needed: @escaping (_ pid: Int32, _ reason: DemandReason) -> Void,
        full: @escaping (_ pid: Int32) -> Void = { _ in }, timeToRun: UInt64 = 100_000
    ) throws {
        self.loop = loop
        self.journal = journal
        self.needed = needed
        self.full = full
        self.timeToRun = timeToRun
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
        for source in watch.sources.values { source.cancel() }
        discard(watch.sockets)
    }

    private func discard(_ sockets: [SocketCopy]) {
        if sockets.isEmpty { return }
        let submission = worker.submit(0) {
            for socket in sockets { socket.close() }
            return .closed
        }
        // Rather a descriptor that stays than a loop that waits.
        if submission != .accepted { journal.log(.debug, "copies of sockets are not closed: \(submission)") }
    }

    private func look(_ pid: Int32) {
        let foreign = registered.subtracting([pid])
        let proc = proc
        let submission = worker.submit(pid) {
            guard let main = try? proc.identity(of: pid) else { return .found([], waiting: [:]) }
            let members = Extent.members(of: main, proc: proc) { foreign.contains($0.pid) }
            var pids = Set(members.map(\.pid))
            if let hierarchy = try? UnifiedHierarchy.find(proc: proc),
                let unit = (try? Cgroup.of(pid, in: hierarchy, proc: proc))?.applicationUnit
            {
                pids.formUnion((try? unit.processes()) ?? [])
            }
            do throws(KernelFailure) {
                let sockets = try SocketCopy.of(
                    pids.sorted(), atMost: Self.mostSockets,
                    connectedTo: { UnreadEvents(service: $0) != nil }, proc: proc)
                var waiting: [SocketCopy.ID: DemandReason] = [:]
                for socket in sockets { waiting[socket.id] = Self.reason(of: socket) }
                return .found(sockets, waiting: waiting)
            } catch {
                return .failed(error)
            }
        }
        if submission == .accepted { watched[pid] = .some(nil) } else { fail(pid, "\(submission)") }
    }

    /// The need that waits in a socket. May block without end.
    private static func reason(of socket: SocketCopy) -> DemandReason? {
        switch socket.role {
        case .listening, .fuse: return socket.isReadable ? .connection : nil
        // That the other end is closed can wait.
        case .accepted: return socket.waiting > 0 ? .connection : nil
        case .connected(to: let service):
            guard let events = UnreadEvents(service: service) else { return nil }
            var request: UnreadEvents.Request?
            let isThere = socket.peek(atMost: mostUnread) { bytes, isCut in
                request = events.request(in: bytes)
                return isCut || request != nil
            }
            // Mostly motions of the pointer over its window.
            guard isThere else { return fill(of: socket) > 1 ? .input : nil }
            switch request {
            case .input?: return .input
            case .paste?: return .paste
            case .endOfSession?: return .sessionEnd
            // What is hidden may be anything.
            case .close?, nil: return .close
            }
        }
    }

    /// How much waits in a connection whose server ends it when it is full, as a multiple of what may wait.
    private static func fill(of socket: SocketCopy) -> Double {
        mostWaiting(in: socket).map { Double(socket.waiting) / Double($0) } ?? 0
    }

    private static func mostWaiting(in socket: SocketCopy) -> Int? {
        guard case .connected(let service) = socket.role else { return nil }
        return UnreadEvents(service: service)?.mostWaiting
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
        for finished in worker.takeResults() {
            let pid = finished.key
            // It runs again, and may have been suspended once more: then another look is on its way.
            var isAwaited: Bool {
                if case .some(nil) = watched[pid] { true } else { false }
            }
            switch finished.value {
            case .closed: break
            case .waits(let id, let reason): settle(id, reason, of: pid)
            case .found(let sockets, let waiting):
                if isAwaited { watch(pid, sockets, waiting) } else { discard(sockets) }
            case .failed(let failure):
                guard isAwaited else { break }
                watched.removeValue(forKey: pid)
                fail(pid, "\(failure)")
            }
        }
    }

    private func watch(_ pid: Int32, _ sockets: [SocketCopy], _ waiting: [SocketCopy.ID: DemandReason]) {
        // What it has accepted from meanwhile counts again.
        let former = (ignored[pid] ?? []).intersection(waiting.keys)
        ignored[pid] = former.isEmpty ? nil : former
        let held = watched.values.flatMap { $0?.sockets ?? [] }
        let candidates = sockets.filter { !former.contains($0.id) }
        var kept: [SocketCopy] = []
        for kind in Kind.allCases {
            let left = Self.mostOfAll - held.count { Kind(of: $0) == kind }
            kept += candidates.filter { Kind(of: $0) == kind }.prefix(max(left, 0))
        }
        let ids = Set(kept.map(\.id))
        discard(sockets.filter { !ids.contains($0.id) })
        let sources = kept.map { ($0.id, follow($0, of: pid)) }
        watched[pid] = Watched(
            sockets: kept, sources: Dictionary(sources) { first, _ in first }.compactMapValues(\.self))
        if let socket = kept.first(where: { waiting[$0.id] != nil }), let reason = waiting[socket.id] {
            report(reason, in: socket.id, of: pid)
        }
    }

    private func follow(_ socket: SocketCopy, of pid: Int32) -> Source? {
        switch socket.role {
        case .listening:
            return try? loop.watch(socket.descriptor) { [unowned self] _ in
                report(.connection, in: socket.id, of: pid)
            }
        case .connected, .accepted, .fuse:
            // Most of what a server sends is no request, and stays unread until the application runs.
            return try? loop.watch(socket.descriptor, for: [.readable, .edgeTriggered]) { [unowned self] _ in
                look(into: socket, of: pid)
            }
        }
    }

    /// Looks at what has arrived, one look at a time.
    private func look(into socket: SocketCopy, of pid: Int32) {
        let isUnderWay = watched[pid]??.looks[socket.id] != nil
        watched[pid]??.looks[socket.id] = isUnderWay
        if isUnderWay { return }
        // A copy is closed by the same worker, and so after this.
        let submission = worker.submit(pid) { .waits(socket.id, Self.reason(of: socket)) }
        if submission != .accepted { watched[pid]??.looks[socket.id] = nil }
    }

    private func settle(_ id: SocketCopy.ID, _ reason: DemandReason?, of pid: Int32) {
        guard let isToBeRepeated = watched[pid]??.looks.removeValue(forKey: id),
            let socket = watched[pid]??.sockets.first(where: { $0.id == id })
        else { return }
        if watched[pid]??.reported != nil {
            noteFill(of: socket, pid)
        } else if let reason {
            report(reason, in: id, of: pid)
        }
        if isToBeRepeated, watched[pid]??.sockets.contains(where: { $0.id == id }) == true {
            look(into: socket, of: pid)
        }
    }

    /// The need was reported in vain: a person or another program has stopped the application. Whoever is suspended by
    /// policy runs again in a moment; if it does not, what arrives later is looked at.
    private func noteFill(of socket: SocketCopy, _ pid: Int32) {
        let fill = Self.fill(of: socket)
        if fill <= 1 {
            // It was drained.
            watched[pid]??.isFull = false
        } else if fill > 2, case let watch?? = watched[pid], !watch.isFull, let reported = watch.reported,
            loop.now >= reported + timeToRun
        {
            watched[pid]??.isFull = true
            full(pid)
        }
    }

    private func report(_ reason: DemandReason, in id: SocketCopy.ID, of pid: Int32) {
        guard case var watch?? = watched[pid], watch.reported == nil else { return }
        // Until it is suspended anew.
        watch.reported = loop.now
        let kept = Set(watch.sockets.filter { Self.mostWaiting(in: $0) != nil }.map(\.id))
        for (id, source) in watch.sources where !kept.contains(id) { source.cancel() }
        watch.sources = watch.sources.filter { kept.contains($0.key) }
        watch.looks = watch.looks.filter { kept.contains($0.key) }
        discard(watch.sockets.filter { !kept.contains($0.id) })
        watch.sockets.removeAll { !kept.contains($0.id) }
        watched[pid] = watch
        // Whatever touches a mount waits for the next request as for this one.
        if case .socket = id { ignored[pid, default: []].insert(id) }
        needed(pid, reason)
    }
}
