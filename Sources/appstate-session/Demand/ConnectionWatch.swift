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
/// application is suspended. It searches for sockets, and closes copies, on a separate thread, because an
/// application can make either take any time.
final class ConnectionWatch: Watcher {
    private let loop: EventLoop
    private let journal: Journal
    private let needed: (_ pid: Int32, _ reason: DemandReason) -> Void
    private let full: (_ pid: Int32) -> Void
    private let sessionBus: String?
    /// Whether calls on the session bus are looked for as well, because no monitor sees them.
    var inspectsSessionBus = false {
        didSet {
            guard inspectsSessionBus != oldValue else { return }
            // The searches under way answer with the former value, and are repeated then.
            for case (let pid, _?) in watched {
                leave(pid)
                look(pid)
            }
        }
    }
    private let proc = Proc()
    private let worker: Worker
    private var source: Source?
    /// By the main process; nil: its sockets are being searched for.
    private var watched: [Int32: Watched?] = [:]
    /// The sockets with pending data that was already reported, and how many bytes waited in each then. The application
    /// has run since and has not read the data, so it need not run for it again.
    private var ignored: [Int32: [SocketCopy.ID: Int]] = [:]
    private var registered: Set<Int32> = []
    /// Applications whose examination has failed: they are examined again.
    private var failed: Set<Int32> = []
    private var retry: Retry?
    /// The last complaint.
    private var complaint: String?

    private struct Watched {
        var sockets: [SocketCopy] = []
        var sources: [SocketCopy.ID: Source] = [:]
        /// The connections that are being examined, and whether data has arrived in each meanwhile.
        var looks: [SocketCopy.ID: Bool] = [:]
        /// When the demand was reported; after that only connections that fill up, or by which it may be asked to end,
        /// are watched. nil: it was not reported.
        var reported: UInt64?
        var isAskedToEnd = false
        var isFull = false
    }

    /// The sockets of an application, and those with pending data for which it is needed.
    private typealias Found = (sockets: [SocketCopy], waiting: [SocketCopy.ID: DemandReason])

    /// The kinds of descriptors, each with its own limit.
    private enum Kind: CaseIterable {
        case connected
        case bus
        case listening
        case accepted

        init(of socket: SocketCopy) {
            self =
                switch socket.role {
                case .connected(to: let service) where ConnectionWatch.events(of: service) == .bus: .bus
                case .connected, .fuse: .connected
                case .listening: .listening
                case .accepted: .accepted
                }
        }
    }

    /// The most sockets of one application, and the most of each kind in all.
    private static let mostSockets = 16
    private static let mostOfAll = 128
    /// The most bytes of a server's pending data that are examined: the kernel's default limit of a socket's
    /// queue (net.core.wmem_default).
    private static let mostUnread = 212_992
    /// The time within which an application runs after a reported demand, unless it must stay suspended, in microseconds.
    private static let timeToRun: UInt64 = 100_000

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
        retry = try Retry(loop) { [unowned self] in lookAgain() }
    }

    deinit {
        for case let watch? in watched.values { drop(watch) }
    }

    func follow(_ situation: Situation) {
        inspectsSessionBus = !situation.seesCalls
        let applications = situation.applications
        // Without a daemon, nothing tells that an application runs again or has ended. Our copies must not keep its
        // connections open.
        watch(applications.isKnown ? Set(applications.suspended) : [], among: applications.registered)
    }

    /// Watches applications that are suspended, each known by its main process.
    ///
    /// - Parameter registered: the main processes of all applications, at which another extent begins.
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
        worker.run {
            for socket in sockets { socket.close() }
        }
    }

    private func look(_ pid: Int32) {
        let foreign = registered.subtracting([pid])
        let (proc, sessionBus, inspectsSessionBus) = (proc, sessionBus, inspectsSessionBus)
        let reported = ignored[pid] ?? [:]
        watched[pid] = .some(nil)
        worker.run { () -> Result<Found, KernelFailure> in
            guard let main = try? proc.identity(of: pid) else { return .success(([], [:])) }
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
                    connectedTo: { service in
                        if service == sessionBus || service.contains(Self.sessionProxy) {
                            return inspectsSessionBus
                        }
                        return UnreadEvents(service: service) != nil
                    }, minor: { Self.events(of: $0) == .bus }, proc: proc)
                var waiting: [SocketCopy.ID: DemandReason] = [:]
                for socket in sockets {
                    waiting[socket.id] = Self.reason(of: socket, behind: reported[socket.id] ?? 0)
                }
                return .success((sockets, waiting))
            } catch {
                return .failure(error)
            }
        } then: { [weak self] in
            self?.take($0, inspectsSessionBus, of: pid)
        }
    }

    /// In the name of the socket of a Flatpak's proxy for the session bus.
    private static let sessionProxy = "/.dbus-proxy/session-bus-proxy-"

    /// What a service sends. Of those that are asked for, only the session bus has any other name.
    private static func events(of service: String) -> UnreadEvents { UnreadEvents(service: service) ?? .bus }

    /// The demand that is pending in a socket. May block indefinitely.
    ///
    /// - Parameter reported: so many bytes were there when a demand was reported. For a bus only what follows counts,
    ///   unless fewer are left.
    private static func reason(of socket: SocketCopy, behind reported: Int) -> DemandReason? {
        switch socket.role {
        case .listening, .fuse: return socket.isReadable ? .connection : nil
        // The end of the connection is not urgent.
        case .accepted: return socket.waiting > 0 ? .connection : nil
        case .connected(to: let service):
            let events = Self.events(of: service)
            var request: UnreadEvents.Request?
            let isThere = socket.peek(atMost: mostUnread) { bytes, isCut in
                guard events == .bus else {
                    request = events.request(in: bytes)
                    return isCut || request != nil
                }
                let isNew = reported == 0 || socket.waiting < reported
                let known = isNew ? 0 : min(reported, bytes.count)
                request = events.request(in: UnsafeRawBufferPointer(rebasing: bytes[known...]))
                // A call may be among what is not shown.
                return request != nil || isNew && (isCut || bytes.count == mostUnread)
            }
            // Mostly pointer motion events over its window.
            guard isThere else { return fill(of: socket) > 1 ? .input : nil }
            switch request {
            case .input?: return .input
            case .paste?: return .paste
            case .endOfSession?: return .sessionEnd
            case .call?: return .call
            case .close?: return .close
            case nil where events == .bus: return .call
            // The hidden data may be anything.
            case .message?, nil: return .message
            }
        }
    }

    /// The amount of pending data in a connection that the server closes when it is full, as a multiple of
    /// the tolerated amount.
    private static func fill(of socket: SocketCopy) -> Double {
        mostWaiting(in: socket).map { Double(socket.waiting) / Double($0) } ?? 0
    }

    private static func mostWaiting(in socket: SocketCopy) -> Int? {
        guard case .connected(let service) = socket.role else { return nil }
        return Self.events(of: service).mostWaiting
    }

    /// Whether the application may be asked to end through this socket.
    private static func mayAskToEnd(_ socket: SocketCopy) -> Bool {
        guard case .connected(let service) = socket.role else { return false }
        return switch events(of: service) {
        case .x11, .xsmp: true
        case .wayland, .bus: false
        }
    }

    private func fail(_ pid: Int32, _ why: String) {
        journal.log(.debug, "the sockets of process \(pid) are looked for again: \(why)")
        if failed.isEmpty { retry?.schedule() }
        failed.insert(pid)
    }

    /// The kernel has no unix_diag, or a security module forbids it.
    private static let lasting: Set<Int32> = [
        EPROTONOSUPPORT, EAFNOSUPPORT, EOPNOTSUPP, ENOENT, EINVAL, EPERM, EACCES,
    ]

    /// Another attempt would fail, too.
    private func complain(_ failure: KernelFailure) {
        let why = "connections to suspended applications are not seen: \(failure)"
        if complaint != why { journal.log(.notice, why) }
        complaint = why
    }

    private func lookAnew(_ pid: Int32) {
        watched.removeValue(forKey: pid)
        look(pid)
    }

    private func lookAgain() {
        let pids = failed
        failed = []
        for pid in pids where watched[pid] == nil { look(pid) }
    }

    private func take(
        _ result: Result<Found, KernelFailure>, _ hasInspectedSessionBus: Bool, of pid: Int32
    ) {
        // It runs again, and may have been suspended once more. In that case another examination is on its way.
        let isAwaited = if case .some(nil) = watched[pid] { true } else { false }
        switch result {
        case .success(let found):
            retry?.reset()
            if isAwaited, hasInspectedSessionBus == inspectsSessionBus {
                watch(pid, found.sockets, found.waiting)
            } else {
                discard(found.sockets)
                if isAwaited { lookAnew(pid) }
            }
        case .failure(let failure):
            guard isAwaited else { return }
            watched.removeValue(forKey: pid)
            if Self.lasting.contains(failure.errno) {
                complain(failure)
            } else {
                fail(pid, "\(failure)")
            }
        }
    }

    private func watch(_ pid: Int32, _ sockets: [SocketCopy], _ waiting: [SocketCopy.ID: DemandReason]) {
        // Sockets from which it has accepted connections meanwhile count again. In a bus connection another call may
        // follow those that were reported.
        let present = Dictionary(sockets.map { ($0.id, $0) }) { first, _ in first }
        let former = (ignored[pid] ?? [:]).filter { id, reported in
            guard let socket = present[id] else { return false }
            guard Kind(of: socket) == .bus else { return waiting[id] != nil }
            return waiting[id] == nil && socket.waiting >= reported
        }
        ignored[pid] = former.isEmpty ? nil : former
        let held = watched.values.flatMap { $0?.sockets ?? [] }
        let candidates = sockets.filter { former[$0.id] == nil || Kind(of: $0) == .bus }
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
            // Most of a server's data is not a request, and stays unread until the application runs.
            return try? loop.watch(socket.descriptor, for: [.readable, .edgeTriggered]) { [unowned self] _ in
                look(into: socket, of: pid)
            }
        }
    }

    /// Examines arrived data, one connection at a time.
    private func look(into socket: SocketCopy, of pid: Int32) {
        let isUnderWay = watched[pid]??.looks[socket.id] != nil
        watched[pid]??.looks[socket.id] = isUnderWay
        if isUnderWay { return }
        let reported = ignored[pid]?[socket.id] ?? 0
        // The same worker closes the copy, and therefore does so after this job.
        worker.run {
            Self.reason(of: socket, behind: reported)
        } then: { [weak self] in
            self?.settle(socket.id, $0, of: pid)
        }
    }

    private func settle(_ id: SocketCopy.ID, _ reason: DemandReason?, of pid: Int32) {
        guard let isToBeRepeated = watched[pid]??.looks.removeValue(forKey: id),
            let socket = watched[pid]??.sockets.first(where: { $0.id == id })
        else { return }
        if watched[pid]??.reported == nil {
            if let reason { report(reason, in: id, of: pid) }
        } else if let reason, reason.asksToEnd, watched[pid]??.isAskedToEnd == false {
            watched[pid]??.isAskedToEnd = true
            needed(pid, reason)
        } else {
            noteFill(of: socket, pid)
        }
        if isToBeRepeated, watched[pid]??.sockets.contains(where: { $0.id == id }) == true {
            look(into: socket, of: pid)
        }
    }

    /// The demand was reported in vain, because a person or another program has stopped the application. An
    /// application that policy has suspended runs again in a moment; if it does not, data that arrives later
    /// is examined.
    private func noteFill(of socket: SocketCopy, _ pid: Int32) {
        let fill = Self.fill(of: socket)
        if fill <= 1 {
            // It was drained.
            watched[pid]??.isFull = false
        } else if fill > 2, case let watch?? = watched[pid], !watch.isFull, let reported = watch.reported,
            loop.now >= reported + Self.timeToRun
        {
            watched[pid]??.isFull = true
            full(pid)
        }
    }

    private func report(_ reason: DemandReason, in id: SocketCopy.ID, of pid: Int32) {
        guard case var watch?? = watched[pid], watch.reported == nil else { return }
        // Until it is suspended again.
        watch.reported = loop.now
        watch.isAskedToEnd = reason.asksToEnd
        let reported = watch.sockets.first { $0.id == id }?.waiting ?? 0
        let kept = Set(
            watch.sockets.filter { Self.mostWaiting(in: $0) != nil || Self.mayAskToEnd($0) }.map(\.id))
        for (id, source) in watch.sources where !kept.contains(id) { source.cancel() }
        watch.sources = watch.sources.filter { kept.contains($0.key) }
        watch.looks = watch.looks.filter { kept.contains($0.key) }
        discard(watch.sockets.filter { !kept.contains($0.id) })
        watch.sockets.removeAll { !kept.contains($0.id) }
        watched[pid] = watch
        // A process that uses the mount waits for the next request in the same way as for this one.
        if case .socket = id { ignored[pid, default: [:]][id] = reported }
        needed(pid, reason)
    }
}
