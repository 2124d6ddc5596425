import AppStateBus
import AppStateContract
import Glibc
import Linux
import Systemd
import Windows

/// Reports demands that arrive through the descriptors of a suspended application: connections to local
/// sockets (unix(7)) on which it listens, data in connections that it has accepted, requests by its display
/// server and its session manager, such as to close a window, calls on message buses other than the session's, and
/// requests by the kernel for a file system that it serves (FUSE).
///
/// The kernel notifies only processes that poll a socket, so the watch holds a copy of each while the
/// application is suspended. It searches for sockets, examines and closes copies on a separate thread, because an
/// application can make each take any time.
final class ConnectionWatch: Watcher {
    private let loop: EventLoop
    private let journal: Journal
    private let needed: (_ pid: Int32, _ reason: DemandReason) -> Void
    private let full: (_ pid: Int32) -> Void
    private let sessionBus: String?
    private let proc = Proc()
    private let worker: Worker
    private var source: Source?
    private var situation = Situation()
    /// The suspended applications, by the main process.
    private var watched: [Int32: Watched] = [:]
    /// The sockets with a pending demand that was already reported. The application has run since and has not read it,
    /// so it need not run for it again.
    private var ignored: [Int32: Set<SocketCopy.ID>] = [:]
    /// The last complaint.
    private var complaint: String?

    /// What is known of an application until it runs again.
    private final class Watched {
        /// Empty: they are being searched for.
        var sockets: [SocketCopy] = []
        var sources: [Source] = []
        /// The sockets that are being examined, and whether something has arrived in each meanwhile.
        var examined: [SocketCopy.ID: Bool] = [:]
        /// When the demand was reported; after that only data that fills a connection, and requests to end, count.
        var reported: UInt64?
        var isAskedToEnd = false
        var isFull = false
    }

    /// The most sockets of one application. A process has 1024 descriptors unless it asks for more.
    private static let mostSockets = 16
    /// The most bytes of a server's pending data that are examined: the kernel's default limit of a socket's
    /// queue (net.core.wmem_default).
    private static let mostUnread = 212_992
    /// The time within which an application runs after a reported demand, unless it must stay suspended, in microseconds.
    private static let timeToRun: UInt64 = 100_000
    /// In the name of the socket of a Flatpak's proxy for the session bus.
    private static let sessionProxy = "/.dbus-proxy/session-bus-proxy-"

    /// - Parameters:
    ///   - sessionBus: the name of the session bus's socket, as in `sun_path` of unix(7): a monitor sees the calls there.
    ///   - needed: gets the main process of the application. No other demand is reported after that until the
    ///     application is suspended again, except that it is asked to end.
    ///   - full: gets the main process of an application that the display server may soon disconnect, because
    ///     it is still suspended after the demand was reported, and more and more data waits for it.
    init(
        loop: EventLoop, journal: Journal, sessionBus: String? = nil,
        needed: @escaping (_ pid: Int32, _ reason: DemandReason) -> Void,
        full: @escaping (_ pid: Int32) -> Void = { _ in }
    ) throws {
        self.loop = loop
        self.journal = journal
        self.needed = needed
        self.full = full
        self.sessionBus = sessionBus
        worker = try Worker(name: "connections")
        source = try loop.watch(worker.descriptor) { [worker] _ in worker.complete() }
    }

    deinit {
        for pid in watched.keys { leave(pid) }
    }

    func follow(_ situation: Situation) {
        // Calls on the session bus are looked for as well, or no longer.
        if situation.seesCalls != self.situation.seesCalls { for pid in watched.keys { leave(pid) } }
        self.situation = situation
        let applications = situation.applications
        ignored = ignored.filter { applications.registered.contains($0.key) }
        // Without a daemon, nothing tells that an application runs again or has ended. Our copies must not keep its
        // connections open.
        let suspended = applications.isKnown ? Set(applications.suspended) : []
        for pid in watched.keys where !suspended.contains(pid) { leave(pid) }
        for pid in suspended where watched[pid] == nil { search(pid) }
    }

    private func leave(_ pid: Int32) {
        guard let watch = watched.removeValue(forKey: pid) else { return }
        for source in watch.sources { source.cancel() }
        watch.sources = []
        discard(watch.sockets)
    }

    private func discard(_ sockets: [SocketCopy]) {
        if sockets.isEmpty { return }
        worker.run {
            for socket in sockets { socket.close() }
        }
    }

    // MARK: Sockets

    private func search(_ pid: Int32) {
        let watch = Watched()
        watched[pid] = watch
        let foreign = situation.applications.registered.subtracting([pid])
        let (proc, sessionBus, seesCalls) = (proc, sessionBus, situation.seesCalls)
        let ignored = ignored[pid] ?? []
        worker.run { () -> Result<(sockets: [SocketCopy], ignored: Set<SocketCopy.ID>), KernelFailure> in
            guard let main = try? proc.identity(of: pid) else { return .success(([], [])) }
            let members = Extent.members(of: main, proc: proc) { foreign.contains($0.pid) }
            var pids = Set(members.map(\.pid))
            if let hierarchy = UnifiedHierarchy.find(),
                let unit = (try? Cgroup.of(pid, in: hierarchy, proc: proc))?.applicationUnit
            {
                pids.formUnion((try? unit.processes()) ?? [])
            }
            do throws(KernelFailure) {
                let sockets = try SocketCopy.of(
                    pids.sorted(), atMost: Self.mostSockets,
                    events: { service in
                        if service == sessionBus || service.contains(Self.sessionProxy) {
                            return seesCalls ? nil : .bus
                        }
                        return UnreadEvents(service: service)
                    }, proc: proc)
                // Sockets in which nothing of what was reported is left count again.
                let still = sockets.filter { ignored.contains($0.id) && Self.reason(of: $0) != nil }
                return .success((sockets, Set(still.map(\.id))))
            } catch {
                return .failure(error)
            }
        } then: { [weak self] result in
            switch result {
            case .success(let found): self?.take(found.sockets, found.ignored, watch, pid)
            case .failure(let failure): self?.complain(failure)
            }
        }
    }

    /// For example, the kernel has no unix_diag, or a security module forbids it.
    private func complain(_ failure: KernelFailure) {
        let why = "connections to suspended applications are not seen: \(failure)"
        if complaint != why { journal.log(.notice, why) }
        complaint = why
    }

    private func take(
        _ sockets: [SocketCopy], _ ignored: Set<SocketCopy.ID>, _ watch: Watched, _ pid: Int32
    ) {
        // It runs again, and may have been suspended once more.
        guard watched[pid] === watch else { return discard(sockets) }
        self.ignored[pid] = ignored.isEmpty ? nil : ignored
        discard(sockets.filter { ignored.contains($0.id) })
        watch.sockets = sockets.filter { !ignored.contains($0.id) }
        // Most of a server's data is not a request, and stays unread until the application runs.
        watch.sources = watch.sockets.compactMap { socket in
            try? loop.watch(socket.descriptor, for: [.readable, .edgeTriggered]) { [unowned self] _ in
                examine(socket, watch, pid)
            }
        }
    }

    /// Examines what has arrived, one socket at a time.
    private func examine(_ socket: SocketCopy, _ watch: Watched, _ pid: Int32) {
        let isUnderWay = watch.examined[socket.id] != nil
        watch.examined[socket.id] = isUnderWay
        if isUnderWay { return }
        // The same worker closes the copy, and therefore does so after this job.
        worker.run {
            Self.reason(of: socket)
        } then: { [weak self] reason in
            guard let self, watched[pid] === watch else { return }
            let isToBeRepeated = watch.examined.removeValue(forKey: socket.id) == true
            settle(socket, reason, watch, pid)
            if isToBeRepeated { examine(socket, watch, pid) }
        }
    }

    /// The demand that is pending in a socket. May block indefinitely.
    private static func reason(of socket: SocketCopy) -> DemandReason? {
        switch socket.role {
        case .listening, .fuse: return socket.isReadable ? .connection : nil
        // The end of the connection is not urgent.
        case .accepted: return socket.waiting > 0 ? .connection : nil
        case .connected(to: let events):
            var request: UnreadEvents.Request?
            let isThere = socket.peek(atMost: mostUnread) { bytes, isCut in
                request = events.request(in: bytes)
                // What is not shown may be anything, on a bus a call.
                return request != nil || isCut || events == .bus && bytes.count == mostUnread
            }
            // Mostly pointer motion events over its window.
            guard isThere else { return fill(of: socket) > 1 ? .input : nil }
            switch request {
            case .input?: return .input
            case .paste?: return .paste
            case .endOfSession?: return .sessionEnd
            case .call?: return .call
            case .close?: return .close
            case .message?: return .message
            case nil: return events == .bus ? .call : .message
            }
        }
    }

    /// The amount of pending data in a connection that the server closes when it is full, as a multiple of
    /// the tolerated amount.
    private static func fill(of socket: SocketCopy) -> Double {
        guard case .connected(to: let events) = socket.role, let most = events.mostWaiting else { return 0 }
        return Double(socket.waiting) / Double(most)
    }

    private func settle(_ socket: SocketCopy, _ reason: DemandReason?, _ watch: Watched, _ pid: Int32) {
        if let reason, watch.reported == nil || reason.asksToEnd && !watch.isAskedToEnd {
            // Until it is suspended again.
            watch.reported = watch.reported ?? loop.now
            watch.isAskedToEnd = reason.asksToEnd
            // A process that uses the mount waits for the next request in the same way as for this one.
            if socket.role != .fuse { ignored[pid, default: []].insert(socket.id) }
            return needed(pid, reason)
        }
        // An application that policy has suspended runs again in a moment. This one does not, because a person or another
        // program has stopped it.
        guard let reported = watch.reported, loop.now >= reported + Self.timeToRun else { return }
        let fill = Self.fill(of: socket)
        if fill > 2, !watch.isFull {
            watch.isFull = true
            full(pid)
        } else if fill > 0, fill <= 1 {
            // It was drained.
            watch.isFull = false
        }
    }
}
