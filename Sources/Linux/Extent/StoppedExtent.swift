import Glibc

/// Stops the processes of one application by signal: SIGSTOP through pidfds, parents first, repeated until the set is
/// stable. Sends SIGCONT in the reverse order, only to the processes that it stopped.
///
/// A process's children are not signalled before the process itself is stopped (`T`) with all its threads. A
/// stopped process creates no more children, so the set is closed from the top down. In addition, a process
/// that waits in vfork(2) for its child to execute cannot stop while that child is stopped. Only a process
/// that is not stopped after several calls is skipped.
public final class StoppedExtent {
    /// The progress of the stop.
    public enum Progress: Equatable, Sendable {
        /// The main process is `T`, every member is stopped, gone or inaccessible, and a further scan found
        /// no new process.
        case complete
        /// Call `proceed` again shortly after: some process is not stopped yet.
        case pending
        /// The same, and some process has got further since the last call.
        case advancing
    }

    /// The process that the extent begins with.
    public let main: ProcessIdentity

    /// The failures since the stop was last begun, the first of each kind (`FailureList`). `EPERM`: the
    /// user ids of a process are not all the owner's (it and its descendants are left alone). `E2BIG`: the extent has
    /// more than `Extent.mostProcesses` processes. `EMFILE`: we do not have enough descriptors.
    public var failures: [KernelFailure] { list.failures }
    private(set) var list = FailureList()

    /// How many SIGSTOPs were sent.
    private(set) var signalsSent = 0

    private let proc: Proc
    private let owner: UInt32
    /// All members, parents first.
    private var held: [Member] = []
    private var known: Set<ProcessIdentity> = []
    private var call = 0

    /// Members that are not stopped yet, or whose children were not examined since; in the order of `held`.
    private var frontier: [Member] = []
    /// Members that were signalled and are not stopped yet. They are checked again in the next call.
    private var waiting: [Member] = []
    private var hasProgressed = false
    /// How often another process's SIGCONT removed one of our stops before it took effect, since all members
    /// were stopped.
    private var lostStops = 0

    private final class Member {
        enum Phase: Equatable {
            case found
            /// In which call and when it was signalled, and whether its children still wait for it to stop.
            case signalled(call: Int, at: UInt64, isAwaited: Bool)
            case stopped(byUs: Bool)
        }

        let process: HeldProcess
        /// Its parent process when it was found.
        let parent: Int32
        var phase: Phase
        /// How many SIGSTOPs of ours it may have got since it was last seen to have none pending.
        var signals = 0
        var hasLeft = false

        init(_ process: HeldProcess, below parent: Int32, _ phase: Phase = .found) {
            self.process = process
            self.parent = parent
            self.phase = phase
        }

        var stands: Bool {
            if case .stopped = phase { return true }
            return false
        }

        var isHeldByUs: Bool { isOurs && !hasLeft }

        var isOurs: Bool {
            switch phase {
            case .found, .stopped(byUs: false): false
            case .signalled, .stopped(byUs: true): true
            }
        }
    }

    /// After this many calls a member that is not stopped is signalled again, and its children no longer wait.
    private static let patience = 32
    /// The least number of microseconds for that: on a busy machine a child of vfork(2) takes long to execute its
    /// program.
    private static let leastPatience: UInt64 = 1_000_000

    /// The result of one check of one member.
    private enum Step {
        /// It is stopped, or will not get any further; its children are next.
        case settled
        /// It was signalled: check it again.
        case changed
        /// It was signalled and is not stopped yet.
        case waiting
        /// It has taken so long that its children are stopped anyway.
        case stubborn
        /// It has exited, or we must not stop it, and it is no longer a member.
        case left
    }

    /// Stops nothing yet. `uid` owns the application: only processes that wholly belong to this user are signalled.
    public init(proc: Proc, main: ProcessIdentity, owner uid: UInt32) {
        self.proc = proc
        self.main = main
        owner = uid
    }

    /// The extent as far as it was found, parents first, without members that are gone or inaccessible.
    public var members: [ProcessIdentity] { held.filter { !$0.hasLeft }.map(\.process.identity) }

    /// The members that have our SIGSTOP, parents first. They must be recorded, and continued later.
    public var stoppedByUs: [ProcessIdentity] { held.filter(\.isHeldByUs).map(\.process.identity) }

    /// Whether another process continues a member as fast as it is stopped, as a terminal multiplexer does with the
    /// programs in it. `proceed` would never finish.
    public var isContested: Bool { lostStops > Self.mostLostStops }

    /// After more than this many lost stops, we stop fighting (the life cycle contract, § 2).
    private static let mostLostStops = 5

    /// Whether `stoppedByUs` has any members.
    var holdsAnybody: Bool { held.contains(where: \.isHeldByUs) }

    /// Whether a process is in `stoppedByUs`.
    func holds(_ process: ProcessIdentity) -> Bool {
        known.contains(process) && held.contains { $0.process.identity == process && $0.isHeldByUs }
    }

    /// Whether another process is known to have sent SIGSTOP to the main process after this value had stopped it. A
    /// stopped process takes no signal but SIGCONT and SIGKILL, so that SIGSTOP is still pending. If this value may have
    /// sent more than the one that stopped it, the pending one may be its own.
    var hasOthersStop: Bool {
        held.first { $0.process.identity == main }.map(hasOthersStop) ?? false
    }

    private func hasOthersStop(_ member: Member) -> Bool {
        let identity = member.process.identity
        guard member.isHeldByUs, member.signals == 1, (try? proc.isStopped(identity)) == true else {
            return false
        }
        return (try? proc.hasPendingStop(identity.pid)) == true
    }

    /// Whether the main process is alive and cannot be stopped, because it belongs to another user or could not be
    /// opened. No further call of `proceed` changes that.
    var isMainOutOfReach: Bool {
        known.contains(main) && !held.contains { $0.process.identity == main && !$0.hasLeft }
    }

    /// The main process is stopped by this value or an earlier one. If no SIGSTOP is pending, only one was needed.
    private func settle(_ member: Member) {
        guard member.process.identity == main, member.signals != 1, (try? proc.isStopped(main)) == true,
            (try? proc.hasPendingStop(main.pid)) == false
        else { return }
        member.signals = 1
    }

    /// Takes over members that an earlier value stopped (its `stoppedByUs`, in that order), to be continued by this
    /// value. They include members that the signal has yet to stop. A process that is gone, or that runs, is
    /// skipped; a process that cannot be reached for another reason is in `failures`.
    public func adopt(_ stopped: [ProcessIdentity]) {
        for identity in stopped where !known.contains(identity) && known.count < Extent.mostProcesses {
            do throws(KernelFailure) {
                let process = try HeldProcess(identity, proc: proc)
                guard try proc.hasStop(identity) else { continue }
                let parent = try proc.stat(identity.pid).parent
                known.insert(identity)
                let member = Member(process, below: parent, .stopped(byUs: true))
                held.append(member)
                settle(member)
            } catch {
                if !error.isNoSuchProcess { list.add(error) }
            }
        }
    }

    /// Begins to stop, or continues stopping. `isForeign` says whether a process is an application of its own: the
    /// extent ends there. It is not called for the main process, nor for a process that is a member already.
    public func stop(isForeign: (ProcessIdentity) -> Bool) -> Progress {
        if !known.contains(main) {
            list.clear()
            if let member = hold(main, below: 0) {
                frontier.append(member)
                // Members that an earlier value stopped may be there already, if the main process was running.
                held.insert(held.removeLast(), at: 0)
            }
        }
        return proceed(isForeign: isForeign)
    }

    /// Continues: first with the members that are not stopped yet and their children, then with scans of all members,
    /// until a scan finds no new process and no member that runs again. A member that another process continued
    /// meanwhile is stopped again.
    public func proceed(isForeign: (ProcessIdentity) -> Bool) -> Progress {
        call += 1
        hasProgressed = false
        frontier += waiting
        waiting = []
        // Bounds one call against a tree that grows as fast as it is walked.
        for _ in 0..<64 {
            advanceFrontier(isForeign)
            guard waiting.isEmpty else { return hasProgressed ? .advancing : .pending }
            scan(isForeign)
            guard frontier.isEmpty else { continue }
            guard held.first.map({ $0.process.identity == main && $0.stands }) == true else {
                return .pending
            }
            lostStops = 0
            return .complete
        }
        return .advancing
    }

    /// Sends SIGCONT in the reverse order to the members that this value stopped, except the spared ones, and forgets
    /// all members.
    public func release(sparing spared: Set<ProcessIdentity> = []) {
        forgetWork()
        while let member = held.popLast() {
            guard !member.hasLeft, member.isOurs, !spared.contains(member.process.identity) else { continue }
            takeBack(member)
        }
        known = []
    }

    /// Removes a member that is an application of its own from now on. It gets SIGCONT if this value stopped it, unless
    /// another process has stopped it since. The members below it are handed to the other extent, which continues them
    /// later.
    ///
    /// False: it was not a member.
    public func handOver(_ process: ProcessIdentity, to other: StoppedExtent) -> Bool {
        guard known.contains(process) else { return false }
        var line: Set = [process.pid]
        var kept: [Member] = []
        for member in held {
            let identity = member.process.identity
            guard identity == process || line.contains(member.parent) else {
                kept.append(member)
                continue
            }
            line.insert(identity.pid)
            known.remove(identity)
            if member.isHeldByUs {
                if identity != process {
                    other.take(member)
                } else if !hasOthersStop(member) {
                    takeBack(member)
                }
            }
            member.hasLeft = true
        }
        held = kept
        return true
    }

    /// Takes a member over from another extent, parents first.
    private func take(_ member: Member) {
        guard known.insert(member.process.identity).inserted else { return }
        held.append(Member(member.process, below: member.parent, .stopped(byUs: true)))
    }

    /// Sends SIGKILL to all members, the main process last, and forgets them all. After `complete` no process
    /// is missed, because no member can fork. A member that no longer wholly belongs to the owner, or that is
    /// an application of its own by now, is continued instead if we had stopped it.
    public func kill(isForeign: (ProcessIdentity) -> Bool = { _ in false }) {
        forgetWork()
        // The kernel continues the stopped members of a process group when the last member dies that had a parent
        // outside of the group (setpgid(2), "orphaned process group"): they would continue to fork.
        while let member = held.popLast() {
            guard !member.hasLeft else { continue }
            // It may have been registered since it was found.
            if member.process.identity != main, isForeign(member.process.identity) {
                if member.isOurs { takeBack(member) }
                continue
            }
            do throws(KernelFailure) {
                try member.process.signal(SIGKILL, owner: owner, proc: proc)
            } catch {
                if !error.isNoSuchProcess {
                    list.add(error)
                    if member.isOurs { try? member.process.takeBack(SIGCONT) }
                }
            }
        }
        known = []
    }

    private func forgetWork() {
        (frontier, waiting) = ([], [])
        lostStops = 0
    }

    private func takeBack(_ member: Member) {
        do throws(KernelFailure) {
            try resume(member)
        } catch {
            if !error.isNoSuchProcess { list.add(error) }
        }
    }

    private func resume(_ member: Member) throws(KernelFailure) {
        if case .stopped = member.phase {
            do throws(KernelFailure) {
                try member.process.checkOwner(owner, proc: proc)
            } catch {
                // If we cannot check because of a lack of descriptors, no process must stay stopped for that
                // reason.
                if error.errno == EPERM { throw error }
            }
        }
        try member.process.takeBack(SIGCONT)
    }

    /// Continues with the members that are not stopped yet.
    private func advanceFrontier(_ isForeign: (ProcessIdentity) -> Bool) {
        var next = 0
        // The array grows behind the index: children come after their parents.
        while next < frontier.count {
            let member = frontier[next]
            next += 1
            guard !member.hasLeft else { continue }
            let step = advance(member, isForeign)
            switch step {
            case .settled, .stubborn:
                holdChildren(of: member, isForeign)
                if step == .stubborn { waiting.append(member) } else { hasProgressed = true }
            case .changed:
                frontier.append(member)
            case .waiting:
                waiting.append(member)
            case .left:
                leave(member)
            }
        }
        frontier = []
    }

    /// Checks all members and their children once more. Puts each process that is new, and each member that runs again,
    /// into the frontier.
    private func scan(_ isForeign: (ProcessIdentity) -> Bool) {
        var next = 0
        while next < held.count {
            let member = held[next]
            next += 1
            guard !member.hasLeft else { continue }
            switch advance(member, isForeign) {
            case .settled: holdChildren(of: member, isForeign)
            case .changed, .waiting, .stubborn: frontier.append(member)
            case .left: leave(member)
            }
        }
        held.removeAll(where: \.hasLeft)
    }

    private func leave(_ member: Member) {
        member.hasLeft = true
        hasProgressed = true
    }

    private func advance(_ member: Member, _ isForeign: (ProcessIdentity) -> Bool) -> Step {
        let process = member.process
        guard !process.hasExited else { return forget(member) }
        // It may have been registered since it was found. If it had our signal, it was released then.
        if case .found = member.phase, process.identity != main, isForeign(process.identity) {
            return forget(member)
        }
        do throws(KernelFailure) {
            switch try proc.state(of: process.identity) {
            case .stopped:
                return try stands(member)
            case .zombie, .dead:
                return forget(member)
            case .tracingStop where member.isOurs && process.identity != main:
                // Its tracer has our signal and decides; the process executes nothing until then.
                return .settled
            case .running, .sleeping, .diskSleep, .tracingStop, .idle, .other:
                return try press(member)
            }
        } catch {
            return fail(member, error)
        }
    }

    private func stands(_ member: Member) throws(KernelFailure) -> Step {
        switch member.phase {
        case .stopped:
            return .settled
        case .found:
            try member.process.checkOwner(owner, proc: proc)
            member.phase = .stopped(byUs: false)
        case .signalled(_, _, let isAwaited):
            if isAwaited, try !threadsStand(of: member) { return try press(member) }
            try member.process.checkOwner(owner, proc: proc)
            member.phase = .stopped(byUs: true)
            settle(member)
        }
        return .settled
    }

    /// After the first check that finds the leading thread stopped, no thread creates another.
    private func threadsStand(of member: Member) throws(KernelFailure) -> Bool {
        let pid = member.process.identity.pid
        return try proc.threads(of: pid).allSatisfy { proc.threadStands($0, in: pid) }
    }

    private func press(_ member: Member) throws(KernelFailure) -> Step {
        guard case .signalled(let before, let at, let isAwaited) = member.phase else {
            try signal(member, isAwaited: true)
            return .changed
        }
        // One signal is enough, unless another process's SIGCONT removes it.
        if before < call, try hasLostStop(member) {
            lostStops += 1
            try signal(member, isAwaited: isAwaited)
            return isAwaited ? .waiting : .stubborn
        }
        guard call - before >= Self.patience, Clock.monotonicMicroseconds >= at + Self.leastPatience else {
            return isAwaited ? .waiting : .stubborn
        }
        try signal(member, isAwaited: false)
        return .stubborn
    }

    private func signal(_ member: Member, isAwaited: Bool) throws(KernelFailure) {
        try member.process.signal(SIGSTOP, owner: owner, proc: proc)
        signalsSent += 1
        member.signals += 1
        member.phase = .signalled(call: call, at: Clock.monotonicMicroseconds, isAwaited: isAwaited)
    }

    /// Whether our SIGSTOP is neither pending nor in effect: a thread that takes it out of the queue stops at the same
    /// moment.
    private func hasLostStop(_ member: Member) throws(KernelFailure) -> Bool {
        let identity = member.process.identity
        guard try !proc.hasStop(identity) else { return false }
        return try proc.threads(of: identity.pid).allSatisfy { !proc.threadStands($0, in: identity.pid) }
    }

    private func forget(_ member: Member) -> Step {
        known.remove(member.process.identity)
        return .left
    }

    private func fail(_ member: Member, _ failure: KernelFailure) -> Step {
        if failure.isNoSuchProcess { return forget(member) }
        list.add(failure)
        // It stays known, so that later scans leave it and the processes below it alone.
        guard member.isOurs else { return .left }
        // A member that has our signal is not forgotten just because we could not check it.
        guard failure.errno == EPERM else { return .waiting }
        // It executed a set-user-ID program between our check and our signal.
        try? member.process.takeBack(SIGCONT)
        return .left
    }

    /// Adds the new children of a member to the frontier.
    private func holdChildren(of member: Member, _ isForeign: (ProcessIdentity) -> Bool) {
        let parent = member.process.identity
        for child in proc.children(of: parent) where !known.contains(child) && !isForeign(child) {
            guard known.count < Extent.mostProcesses else {
                list.add(KernelFailure(operation: "stop extent", subject: "process \(main)", errno: E2BIG))
                return
            }
            guard let child = hold(child, below: parent.pid) else { continue }
            hasProgressed = true
            frontier.append(child)
        }
    }

    private func hold(_ identity: ProcessIdentity, below parent: Int32) -> Member? {
        do throws(KernelFailure) {
            let member = Member(try HeldProcess(identity, proc: proc), below: parent)
            held.append(member)
            known.insert(identity)
            return member
        } catch {
            if !error.isNoSuchProcess {
                known.insert(identity)
                list.add(error)
            }
            return nil
        }
    }
}
