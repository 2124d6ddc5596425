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
        /// Call `proceed` again at once: there is more to do, or the call made progress.
        case interrupted
    }

    /// The process that the extent begins with.
    public let main: ProcessIdentity

    /// The failures since the stop was last begun, the first of each kind (`FailureList`). `EPERM`: the
    /// user ids of a process are not all the owner's (it and its descendants are left alone). `E2BIG`: the extent has
    /// more than `ExtentWalk.mostProcesses` processes. `EMFILE`: we do not have enough descriptors.
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
    private var nextOfFrontier = 0
    /// Members that were signalled and are not stopped yet. They are checked again in the next call.
    private var waiting: [Member] = []
    /// The progress of the scan of all members, and whether it found a new process or a member that runs
    /// again.
    private var scanned = 0
    private var isScanDirty = false
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
        /// Threads that were not yet seen to be stopped since the leading thread stopped; nil: not looked at.
        var threads: ArraySlice<Int32>?
        /// Where the threads after those are listed; nil: there are no more.
        var nextThreads: Int?
        /// Set while its children are being searched for, and while those that were found must still be held.
        var offspring: Offspring?
        var born: ArraySlice<ProcessIdentity> = []
        var hasLeft = false

        init(_ process: HeldProcess, below parent: Int32, _ phase: Phase = .found) {
            self.process = process
            self.parent = parent
            self.phase = phase
        }

        var isAmongChildren: Bool { offspring != nil || !born.isEmpty }

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
    /// This many threads are listed at once.
    private static let batch = 256
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
        /// The budget was spent before all of its threads were examined.
        case interrupted
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
        for identity in stopped where !known.contains(identity) && known.count < ExtentWalk.mostProcesses {
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
    public func stop(
        within budget: Budget = .unlimited, isForeign: (ProcessIdentity) -> Bool
    ) -> Progress {
        if !known.contains(main) {
            list.clear()
            if let member = hold(main, below: 0) {
                frontier.append(member)
                // Members that an earlier value stopped may be there already, if the main process was running.
                held.insert(held.removeLast(), at: 0)
                scanned = 0
            }
        }
        return proceed(within: budget, isForeign: isForeign)
    }

    /// Continues: first with the members that are not stopped yet and their children, then with scans of all members,
    /// until a scan finds no new process and no member that runs again. A member that another process continued
    /// meanwhile is stopped again.
    public func proceed(
        within budget: Budget = .unlimited, isForeign: (ProcessIdentity) -> Bool
    ) -> Progress {
        call += 1
        hasProgressed = false
        frontier += waiting
        waiting = []
        // Bounds one call against a tree that grows as fast as it is walked.
        for _ in 0..<64 {
            guard advanceFrontier(budget, isForeign) else { return .interrupted }
            guard waiting.isEmpty else { return hasProgressed ? .interrupted : .pending }
            guard scan(budget, isForeign) else { return .interrupted }
            let isWhole = !isScanDirty && frontier.isEmpty
            (scanned, isScanDirty) = (0, false)
            guard isWhole else { continue }
            guard held.first.map({ $0.process.identity == main && $0.stands }) == true else {
                return .pending
            }
            lostStops = 0
            return .complete
        }
        return .interrupted
    }

    /// Sends SIGCONT in the reverse order to the members that this value stopped, except the spared ones, and forgets
    /// all members. False: the budget is spent, and the remaining ones are still members.
    @discardableResult
    public func release(
        sparing spared: Set<ProcessIdentity> = [], within budget: Budget = .unlimited
    ) -> Bool {
        forgetWork()
        while let member = held.popLast() {
            let identity = member.process.identity
            known.remove(identity)
            guard !member.hasLeft, member.isOurs, !spared.contains(identity) else { continue }
            takeBack(member)
            if budget.spend(), !held.isEmpty { return false }
        }
        known = []
        return true
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
        var keptOfScanned = 0
        for (index, member) in held.enumerated() {
            let identity = member.process.identity
            guard identity == process || line.contains(member.parent) else {
                kept.append(member)
                if index < scanned { keptOfScanned += 1 }
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
        (held, scanned) = (kept, keptOfScanned)
        return true
    }

    /// Takes a member over from another extent, parents first.
    private func take(_ member: Member) {
        guard known.insert(member.process.identity).inserted else { return }
        held.append(Member(member.process, below: member.parent, .stopped(byUs: true)))
    }

    /// Sends SIGKILL to all members, the main process last, and forgets them all. After `complete` no process
    /// is missed, because no member can fork. A member that no longer wholly belongs to the owner, or that is
    /// an application of its own by now, is continued instead if we had stopped it. False: the budget is
    /// spent, and the remaining ones are still members.
    @discardableResult
    public func kill(
        within budget: Budget = .unlimited, isForeign: (ProcessIdentity) -> Bool = { _ in false }
    ) -> Bool {
        forgetWork()
        // The kernel continues the stopped members of a process group when the last member dies that had a parent
        // outside of the group (setpgid(2), "orphaned process group"): they would continue to fork.
        while let member = held.popLast() {
            known.remove(member.process.identity)
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
            if budget.spend(), !held.isEmpty { return false }
        }
        known = []
        return true
    }

    private func forgetWork() {
        (frontier, nextOfFrontier, waiting, scanned, isScanDirty) = ([], 0, [], 0, false)
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

    /// Continues with the members that are not stopped yet; false: the budget is spent.
    private func advanceFrontier(_ budget: Budget, _ isForeign: (ProcessIdentity) -> Bool) -> Bool {
        // The array grows behind the index: children come after their parents.
        while nextOfFrontier < frontier.count {
            let member = frontier[nextOfFrontier]
            if !member.hasLeft {
                // A member whose children are being added was already checked.
                let step = member.isAmongChildren ? .settled : advance(member, budget, isForeign)
                switch step {
                case .settled, .stubborn:
                    guard holdChildren(of: member, budget, isForeign) else { return false }
                    if step == .stubborn { waiting.append(member) } else { hasProgressed = true }
                case .changed:
                    frontier.append(member)
                case .waiting:
                    waiting.append(member)
                case .left:
                    leave(member)
                case .interrupted:
                    return false
                }
            }
            nextOfFrontier += 1
            if budget.spend() { return false }
        }
        (frontier, nextOfFrontier) = ([], 0)
        return true
    }

    /// Checks all members and their children once more; false: the budget is spent. Puts each process that is
    /// new, and each member that runs again, into the frontier.
    private func scan(_ budget: Budget, _ isForeign: (ProcessIdentity) -> Bool) -> Bool {
        if scanned == 0, held.first?.isAmongChildren != true {
            isScanDirty = false
            held.removeAll(where: \.hasLeft)
        }
        while scanned < held.count {
            let member = held[scanned]
            if !member.hasLeft {
                switch member.isAmongChildren ? .settled : advance(member, budget, isForeign) {
                case .settled:
                    guard holdChildren(of: member, budget, isForeign) else { return false }
                case .changed, .waiting, .stubborn:
                    isScanDirty = true
                    frontier.append(member)
                case .left:
                    leave(member)
                case .interrupted:
                    return false
                }
            }
            scanned += 1
            if budget.spend() { return false }
        }
        held.removeAll(where: \.hasLeft)
        return true
    }

    private func leave(_ member: Member) {
        member.hasLeft = true
        hasProgressed = true
    }

    private func advance(
        _ member: Member, _ budget: Budget, _ isForeign: (ProcessIdentity) -> Bool
    ) -> Step {
        let process = member.process
        guard !process.hasExited else { return forget(member) }
        // It may have been registered between two pieces. If it had our signal, it was released then.
        if case .found = member.phase, process.identity != main, isForeign(process.identity) {
            return forget(member)
        }
        do throws(KernelFailure) {
            switch try proc.state(of: process.identity) {
            case .stopped:
                return try stands(member, budget)
            case .zombie, .dead:
                return forget(member)
            case .tracingStop where member.isOurs && process.identity != main:
                // Its tracer has our signal and decides; the process executes nothing until then.
                return .settled
            case .running, .sleeping, .diskSleep, .tracingStop, .idle, .other:
                return try press(member, budget)
            }
        } catch {
            return fail(member, error)
        }
    }

    private func stands(_ member: Member, _ budget: Budget) throws(KernelFailure) -> Step {
        switch member.phase {
        case .stopped:
            return .settled
        case .found:
            try member.process.checkOwner(owner, proc: proc)
            member.phase = .stopped(byUs: false)
        case .signalled(_, _, let isAwaited):
            if isAwaited {
                // After the first check that finds the leading thread stopped, no thread creates another.
                switch try threadsStand(of: member, budget) {
                case true?: break
                case false?: return try press(member, budget)
                case nil: return .interrupted
                }
            }
            try member.process.checkOwner(owner, proc: proc)
            member.phase = .stopped(byUs: true)
            settle(member)
        }
        return .settled
    }

    /// nil: the budget is spent.
    private func threadsStand(of member: Member, _ budget: Budget) throws(KernelFailure) -> Bool? {
        let pid = member.process.identity.pid
        if member.threads == nil { (member.threads, member.nextThreads) = ([], 0) }
        while true {
            while let thread = member.threads?.first {
                guard proc.threadStands(thread, in: pid) else { return false }
                member.threads?.removeFirst()
                if budget.spend() { return nil }
            }
            guard let place = member.nextThreads else { break }
            let batch = try proc.threads(of: pid, from: place, atMost: Self.batch)
            (member.threads, member.nextThreads) = (batch.found[...], batch.next)
        }
        member.threads = nil
        return true
    }

    private func press(_ member: Member, _ budget: Budget) throws(KernelFailure) -> Step {
        guard case .signalled(let before, let at, let isAwaited) = member.phase else {
            try signal(member, isAwaited: true)
            return .changed
        }
        // One signal is enough, unless another process's SIGCONT removes it.
        if before < call, try hasLostStop(member, budget) {
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
    /// moment. With more threads than the budget allows, this is not known, and false.
    private func hasLostStop(_ member: Member, _ budget: Budget) throws(KernelFailure) -> Bool {
        let identity = member.process.identity
        guard try !proc.hasStop(identity) else { return false }
        let threads = try proc.threads(of: identity.pid, from: 0, atMost: Self.batch)
        guard threads.next == nil else { return false }
        for thread in threads.found {
            if proc.threadStands(thread, in: identity.pid) || budget.spend() { return false }
        }
        return true
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

    /// Adds the new children of a member; false: the budget is spent.
    private func holdChildren(
        of member: Member, _ budget: Budget, _ isForeign: (ProcessIdentity) -> Bool
    ) -> Bool {
        if member.born.isEmpty {
            var children = member.offspring ?? Offspring(of: member.process.identity)
            member.offspring = nil
            guard let found = children.proceed(proc, budget) else {
                member.offspring = children
                return false
            }
            member.born = found.filter { !known.contains($0) && !isForeign($0) }[...]
        }
        while let child = member.born.popFirst() {
            guard known.count < ExtentWalk.mostProcesses else {
                member.born = []
                list.add(KernelFailure(operation: "stop extent", subject: "process \(main)", errno: E2BIG))
                return true
            }
            // It may have been registered since it was found.
            if !isForeign(child), let child = hold(child, below: member.process.identity.pid) {
                hasProgressed = true
                isScanDirty = true
                frontier.append(child)
            }
            if budget.spend(), !member.born.isEmpty { return false }
        }
        return true
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
