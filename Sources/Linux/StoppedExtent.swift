import Glibc

/// The processes of one application that we stop by signal: SIGSTOP through pidfds, parents first, repeated
/// until the set is stable; SIGCONT in the reverse order, only to those that we stopped.
///
/// Nobody's children are signalled before the process itself stands (`T`) with all its threads: one that
/// stands has no more children, so the set closes from the top; and one that waits in vfork(2) for its child
/// to execute cannot stand while that child is stopped. Only a process that does not stand after several
/// calls is passed by.
public final class StoppedExtent {
    /// How far the stopping has come.
    public enum Progress: Equatable, Sendable {
        /// The main process is `T`, every member is stopped, gone or out of our reach, and a further scan
        /// found nobody new.
        case complete
        /// Call `proceed(isForeign:)` again shortly after.
        case pending
    }

    /// The process that the extent begins with.
    public let main: ProcessIdentity

    /// What could not be done since the extent was last begun, each once: `EPERM` for a process whose user
    /// ids are not all the owner's (it and its descendants are left alone), `E2BIG` once for an extent of
    /// more than `Extent.limit` processes, `EMFILE` where our descriptors do not suffice.
    public private(set) var failures: [KernelFailure] = []

    private let proc: Proc
    private let owner: UInt32
    private var held: [Member] = []
    private var known: Set<ProcessIdentity> = []
    private var call = 0

    private final class Member {
        enum Phase: Equatable {
            case found
            /// In which call and when, and whether its children still wait for it to stand.
            case signalled(call: Int, at: UInt64, isAwaited: Bool)
            case stopped(byUs: Bool)
        }

        let process: HeldProcess
        var phase: Phase

        init(_ process: HeldProcess, _ phase: Phase = .found) {
            self.process = process
            self.phase = phase
        }

        var isOurs: Bool {
            switch phase {
            case .found, .stopped(byUs: false): false
            case .signalled, .stopped(byUs: true): true
            }
        }
    }

    /// After so many calls a member that does not stand is signalled again, and its children no longer wait.
    private static let patience = 32
    /// And not before so many microseconds: on a busy machine a child of vfork(2) takes long to its program.
    private static let leastPatience: UInt64 = 1_000_000

    /// What became of one member in one pass.
    private enum Step {
        /// Stands, or is as far as it will come; its children are next.
        case settled
        /// Something was done to it: look again.
        case changed
        /// Has its signal and does not stand yet.
        case waiting
        /// Waits for so long that its children are stopped all the same.
        case stubborn
        /// Has exited, or is not ours to stop: no member any more.
        case left
    }

    /// Stops nothing yet. `uid` owns the application: only processes that are wholly its are signalled.
    public init(proc: Proc, main: ProcessIdentity, owner uid: UInt32) {
        self.proc = proc
        self.main = main
        owner = uid
    }

    /// The extent as far as it was found, without those that are gone or out of reach, parents first.
    public var members: [ProcessIdentity] { held.map(\.process.identity) }

    /// The members that have our SIGSTOP, parents first: to be written down, and to be continued.
    public var stoppedByUs: [ProcessIdentity] { held.filter(\.isOurs).map(\.process.identity) }

    /// Takes up members that an earlier value stopped (its `stoppedByUs`, in that order), as ours to
    /// continue; those too that its signal has yet to stop. What is gone, or runs on, is passed over.
    public func adopt(_ stopped: [ProcessIdentity]) {
        for identity in stopped where !known.contains(identity) && known.count < Extent.limit {
            // Asked for the signal first: one that works in between is seen in the state.
            guard let process = try? HeldProcess(identity, proc: proc),
                (try? proc.hasPendingStop(identity.pid)) == true || (try? proc.isStopped(identity)) == true
            else { continue }
            known.insert(identity)
            held.append(Member(process, .stopped(byUs: true)))
        }
    }

    /// Begins to stop, or goes on. `isForeign` says whether a process is an application of its own: the
    /// extent ends there. It is not asked about the main process, nor about one that is a member already.
    public func stop(isForeign: (ProcessIdentity) -> Bool) -> Progress {
        if !known.contains(main) {
            failures = []
            hold(main)
        }
        return proceed(isForeign: isForeign)
    }

    /// Scans again and goes on; call it shortly after while it gives `pending`. A member that somebody else
    /// continued meanwhile is stopped again.
    public func proceed(isForeign: (ProcessIdentity) -> Bool) -> Progress {
        call += 1
        // Bounds one call against a tree that grows as fast as it is walked.
        for _ in 0..<64 {
            let (changed, settled) = pass(isForeign)
            guard changed else { return settled ? .complete : .pending }
        }
        return .pending
    }

    /// SIGCONT in the reverse order to those that this value stopped, except the spared; forgets them all.
    public func release(sparing spared: Set<ProcessIdentity> = []) {
        for member in held.reversed() where member.isOurs && !spared.contains(member.process.identity) {
            do throws(KernelFailure) {
                try resume(member)
            } catch {
                if !error.isNoSuchProcess { failures.append(error) }
            }
        }
        held = []
        known = []
    }

    /// SIGCONT to one of them, where this value stopped it; it is no member any more.
    public func letGo(_ process: ProcessIdentity) {
        guard let index = held.firstIndex(where: { $0.process.identity == process }) else { return }
        let member = held.remove(at: index)
        known.remove(process)
        guard member.isOurs else { return }
        do throws(KernelFailure) {
            try resume(member)
        } catch {
            if !error.isNoSuchProcess { failures.append(error) }
        }
    }

    /// SIGKILL to all members, the main process last; forgets them all. After `complete` nobody is left behind:
    /// none of them can fork. What is no longer wholly the owner's is continued instead, where we had stopped it.
    public func kill() {
        // The kernel continues the stopped members of a process group when the last one dies that had a parent
        // outside of it (setpgid(2), "orphaned process group"): they would go on forking.
        for member in held.reversed() {
            do throws(KernelFailure) {
                try member.process.signal(SIGKILL, owner: owner, proc: proc)
            } catch {
                guard !error.isNoSuchProcess else { continue }
                failures.append(error)
                if member.isOurs { try? member.process.takeBack(SIGCONT) }
            }
        }
        held = []
        known = []
    }

    private func resume(_ member: Member) throws(KernelFailure) {
        if case .stopped = member.phase {
            do throws(KernelFailure) {
                try member.process.checkOwner(owner, proc: proc)
            } catch {
                // That we cannot look, for want of descriptors, must leave nobody stopped.
                if error.errno == EPERM { throw error }
            }
        }
        try member.process.takeBack(SIGCONT)
    }

    private func pass(_ isForeign: (ProcessIdentity) -> Bool) -> (changed: Bool, settled: Bool) {
        var changed = false
        var settled = false
        var everyoneSettled = true
        var left: Set<ProcessIdentity> = []
        var next = 0
        // The array grows behind `next`: children come after their parents.
        while next < held.count {
            let member = held[next]
            next += 1
            let step = advance(member)
            switch step {
            case .settled:
                if member.process.identity == main, case .stopped = member.phase { settled = true }
                if holdChildren(of: member, isForeign) { changed = true }
            case .changed:
                changed = true
            case .waiting:
                everyoneSettled = false
            case .stubborn:
                everyoneSettled = false
                if holdChildren(of: member, isForeign) { changed = true }
            case .left:
                left.insert(member.process.identity)
            }
        }
        if !left.isEmpty {
            held.removeAll { left.contains($0.process.identity) }
        }
        return (changed, settled && everyoneSettled)
    }

    private func advance(_ member: Member) -> Step {
        let process = member.process
        guard !process.hasExited else { return leave(member) }
        do throws(KernelFailure) {
            switch try proc.state(of: process.identity) {
            case .stopped:
                return try stands(member)
            case .zombie, .dead:
                return leave(member)
            case .tracingStop where member.isOurs && process.identity != main:
                // Its tracer has our signal and decides; it executes nothing until then.
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
            if isAwaited, try !proc.everyThreadStands(of: member.process.identity) {
                return try press(member)
            }
            try member.process.checkOwner(owner, proc: proc)
            member.phase = .stopped(byUs: true)
        }
        return .settled
    }

    private func press(_ member: Member) throws(KernelFailure) -> Step {
        // One signal is enough, unless somebody's SIGCONT takes it away before it works.
        if case .signalled(let before, let at, let isAwaited) = member.phase,
            call - before < Self.patience || Clock.monotonicMicroseconds < at + Self.leastPatience
        {
            return isAwaited ? .waiting : .stubborn
        }
        let isFirst: Bool
        if case .signalled = member.phase { isFirst = false } else { isFirst = true }
        try member.process.signal(SIGSTOP, owner: owner, proc: proc)
        member.phase = .signalled(call: call, at: Clock.monotonicMicroseconds, isAwaited: isFirst)
        return isFirst ? .changed : .stubborn
    }

    private func leave(_ member: Member) -> Step {
        known.remove(member.process.identity)
        return .left
    }

    private func fail(_ member: Member, _ failure: KernelFailure) -> Step {
        if failure.isNoSuchProcess { return leave(member) }
        if !failures.contains(failure) { failures.append(failure) }
        // Stays known, so that later passes leave it and what is below it alone.
        guard member.isOurs else { return .left }
        // What has our signal is not forgotten because we could not look at it.
        guard failure.errno == EPERM else { return .waiting }
        // It executed a set-user-ID program between our look and our signal.
        try? member.process.takeBack(SIGCONT)
        return .left
    }

    private func holdChildren(of member: Member, _ isForeign: (ProcessIdentity) -> Bool) -> Bool {
        var anyNew = false
        for child in proc.offspring(of: member.process.identity)
        where !known.contains(child) && !isForeign(child) {
            guard known.count < Extent.limit else {
                let failure = KernelFailure(
                    operation: "stop extent", subject: "process \(main)", errno: E2BIG)
                if !failures.contains(failure) { failures.append(failure) }
                return anyNew
            }
            if hold(child) { anyNew = true }
        }
        return anyNew
    }

    @discardableResult
    private func hold(_ identity: ProcessIdentity) -> Bool {
        do throws(KernelFailure) {
            held.append(Member(try HeldProcess(identity, proc: proc)))
            known.insert(identity)
            return true
        } catch {
            if !error.isNoSuchProcess {
                known.insert(identity)
                failures.append(error)
            }
            return false
        }
    }
}
