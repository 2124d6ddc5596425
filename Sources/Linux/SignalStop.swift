import Glibc

/// Stops an application by signal where no cgroup is its own: SIGSTOP to the main process and its descendants, parents
/// first, until nothing new appears; SIGCONT in the reverse order, to those that it has stopped.
///
/// This is best effort: a shell sees the stop, and another process may continue it. Each signal goes through a pidfd,
/// after a check that the process belongs wholly to the application's user.
public final class SignalStop {
    /// How far the stop is.
    public enum Progress: Equatable, Sendable {
        /// All processes are stopped, and a stopped process forks no others.
        case complete
        /// Call `stop` again a little later.
        case pending
        /// Another process continues it as fast as it is stopped, as a terminal multiplexer does.
        case contested
        /// The main process must not be stopped, or cannot be.
        case refused(KernelFailure)
    }

    /// The process that the application begins with.
    public let main: ProcessIdentity
    /// The first failure of each kind. `EPERM`: a process belongs to another user; it and those below it are left alone.
    public private(set) var failures: [KernelFailure] = []

    private final class Member {
        let process: HeldProcess
        let parent: Int32
        /// Parents have smaller numbers than their children.
        let order: Int
        /// A SIGSTOP that is pending while it is stopped may be ours.
        var mayPendOurs: Bool
        /// It was seen stopped, with all its threads.
        var isStopped: Bool

        init(_ process: HeldProcess, below parent: Int32, order: Int, mayPendOurs: Bool, isStopped: Bool) {
            (self.process, self.parent, self.order) = (process, parent, order)
            (self.mayPendOurs, self.isStopped) = (mayPendOurs, isStopped)
        }

        var identity: ProcessIdentity { process.identity }
    }

    private let proc: Proc
    private let owner: UInt32
    /// Those that have our SIGSTOP.
    private var members: [ProcessIdentity: Member] = [:]
    private var lastOrder = 0
    private var refusal: KernelFailure?
    /// How often another process's SIGCONT has removed one of our stops since all were stopped.
    private var lost = 0
    private static let mostLost = 5

    /// Stops nothing yet. `uid` owns the application.
    public init(proc: Proc, main: ProcessIdentity, owner uid: UInt32) {
        self.proc = proc
        self.main = main
        owner = uid
    }

    /// Those that have our SIGSTOP, parents first.
    public var stoppedByUs: [ProcessIdentity] { inOrder.map(\.identity) }

    /// Whether a process has our SIGSTOP.
    public func holds(_ process: ProcessIdentity) -> Bool { members[process] != nil }

    /// Whether another process has sent SIGSTOP to the main process after us: a stopped process takes no further one, so
    /// it stays pending.
    public var hasOthersStop: Bool { members[main].map(hasOthersStop) ?? false }

    /// Takes over those of an application's processes that an earlier daemon has stopped.
    public func adopt(_ stopped: [ProcessIdentity]) {
        for identity in stopped where !holds(identity) {
            attempt { () throws(KernelFailure) in
                let process = try HeldProcess(identity, proc: proc)
                try process.checkOwner(owner, proc: proc)
                guard try proc.hasStop(identity) else { return }
                let parent = try proc.stat(identity.pid).parent
                let isPending = try proc.hasPendingStop(identity.pid)
                add(process, below: parent, mayPendOurs: isPending, isStopped: true)
            }
        }
    }

    // MARK: Stopping

    /// Stops what runs. Children of a process that is not stopped yet come later: it may fork others, and one that waits
    /// in vfork(2) cannot stop before its child has executed its program.
    ///
    /// - Parameter isForeign: whether a process is an application of its own; not called for the main process.
    public func stop(isForeign: (ProcessIdentity) -> Bool) -> Progress {
        refusal = nil
        var isComplete = true
        var line = [(main, Int32(0))]
        var known: Set = [main]
        var next = 0
        while next < line.count, next < Cgroup.mostProcesses {
            let (process, parent) = line[next]
            next += 1
            switch press(process, below: parent) {
            case nil: continue
            case false?: isComplete = false
            case true?:
                for child in proc.children(of: process) where known.insert(child).inserted {
                    if !isForeign(child) { line.append((child, process.pid)) }
                }
            }
        }
        if let refusal { return .refused(refusal) }
        // Its main process has ended.
        if line.count == 1, members.isEmpty, (try? proc.hasStop(main)) != true { return .pending }
        if lost > Self.mostLost { return .contested }
        if isComplete { lost = 0 }
        return isComplete ? .complete : .pending
    }

    /// Whether the process is stopped; nil: it has ended, or is left alone.
    private func press(_ process: ProcessIdentity, below parent: Int32) -> Bool? {
        do throws(KernelFailure) {
            let member = members[process]
            switch try proc.state(of: process) {
            case .zombie, .dead: return nil
            case .stopped:
                if let member { return try hasStopped(member) }
                return true
            // Its tracer has our signal and decides; the process executes nothing until then.
            case .tracingStop where member != nil && process != main: return true
            case .running, .sleeping, .diskSleep, .tracingStop, .idle, .other: break
            }
            if let member {
                if try hasLostStop(member) {
                    lost += 1
                    try member.process.signal(SIGSTOP, owner: owner, proc: proc)
                    member.mayPendOurs = true
                    member.isStopped = false
                }
                return false
            }
            let held = try HeldProcess(process, proc: proc)
            try held.signal(SIGSTOP, owner: owner, proc: proc)
            add(held, below: parent)
            return false
        } catch {
            if !error.isNoSuchProcess {
                note(error)
                if process == main { refusal = error }
            }
            return nil
        }
    }

    /// A thread may still be in the middle of fork(2), and the process may have executed a set-user-ID program between
    /// our check and our signal.
    private func hasStopped(_ member: Member) throws(KernelFailure) -> Bool {
        if member.isStopped { return true }
        let pid = member.identity.pid
        guard try proc.threads(of: pid).allSatisfy({ proc.isThreadStopped($0, in: pid) }) else {
            return false
        }
        do throws(KernelFailure) {
            try member.process.checkOwner(owner, proc: proc)
        } catch {
            guard error.errno == EPERM else { throw error }
            try member.process.undo(with: SIGCONT)
            members[member.identity] = nil
            throw error
        }
        member.isStopped = true
        // If none is pending, one was enough.
        if try !proc.hasPendingStop(pid) { member.mayPendOurs = false }
        return true
    }

    /// Whether our SIGSTOP is neither pending nor in effect: a thread that takes it out of the queue stops at the same
    /// moment.
    private func hasLostStop(_ member: Member) throws(KernelFailure) -> Bool {
        let pid = member.identity.pid
        guard try !proc.hasStop(member.identity) else { return false }
        return try proc.threads(of: pid).allSatisfy { !proc.isThreadStopped($0, in: pid) }
    }

    // MARK: Releasing

    /// Continues those that it has stopped, and forgets them.
    ///
    /// - Parameter spared: stays stopped, because another process wants that.
    public func release(sparing spared: Set<ProcessIdentity> = []) {
        for member in inOrder.reversed() where !spared.contains(member.identity) { resume(member) }
        members = [:]
    }

    /// A process is an application of its own from now on: it and those below it are continued.
    public func release(from process: ProcessIdentity) {
        var pids: Set = [process.pid]
        var leaving: [Member] = []
        for member in inOrder where member.identity == process || pids.contains(member.parent) {
            pids.insert(member.identity.pid)
            leaving.append(member)
            members[member.identity] = nil
        }
        for member in leaving.reversed() where !hasOthersStop(member) { resume(member) }
    }

    /// Continues all of the application, whoever has stopped it.
    public func endAllStops(isForeign: (ProcessIdentity) -> Bool) {
        for process in ownProcesses(isForeign) {
            attempt { () throws(KernelFailure) in try process.signal(SIGCONT, owner: owner, proc: proc) }
        }
        members = [:]
    }

    /// Sends SIGKILL to all of the application, the main process last: the kernel continues the stopped processes of a
    /// process group once the last one dies that had a parent outside of it (setpgid(2)), and they would go on to fork.
    ///
    /// - Returns: the processes that have SIGKILL.
    public func kill(isForeign: (ProcessIdentity) -> Bool) -> [ProcessIdentity] {
        var all = ownProcesses(isForeign)
        let known = Set(all.map(\.identity))
        // Others may be below a process that has become an application, or their parents have ended since.
        var foreign: Set<Int32> = []
        for member in inOrder where !known.contains(member.identity) {
            if isForeign(member.identity) || foreign.contains(member.parent) {
                foreign.insert(member.identity.pid)
            } else {
                all.append(member.process)
            }
        }
        if let first = all.firstIndex(where: { $0.identity == main }) { all.swapAt(first, all.startIndex) }
        var killed: [ProcessIdentity] = []
        for process in all.reversed() {
            attempt { () throws(KernelFailure) in
                try process.signal(SIGKILL, owner: owner, proc: proc)
                killed.append(process.identity)
            }
        }
        let dying = Set(killed)
        release(sparing: dying)
        return killed
    }

    private func ownProcesses(_ isForeign: (ProcessIdentity) -> Bool) -> [HeldProcess] {
        var held: [ProcessIdentity: HeldProcess] = [:]
        func isOwn(_ identity: ProcessIdentity) -> Bool {
            attempt { () throws(KernelFailure) in
                let process = try HeldProcess(identity, proc: proc)
                try process.checkOwner(owner, proc: proc)
                held[identity] = process
            }
            return held[identity] != nil
        }
        guard isOwn(main) else { return [] }
        return Extent.members(of: main, proc: proc) { isForeign($0) || !isOwn($0) }.compactMap { held[$0] }
    }

    private func resume(_ member: Member) {
        attempt { () throws(KernelFailure) in
            do throws(KernelFailure) {
                try member.process.checkOwner(owner, proc: proc)
            } catch {
                // No process stays stopped because of a lack of descriptors.
                if error.errno == EPERM { throw error }
            }
            try member.process.undo(with: SIGCONT)
        }
    }

    private func hasOthersStop(_ member: Member) -> Bool {
        guard !member.mayPendOurs, (try? proc.isStopped(member.identity)) == true else { return false }
        return (try? proc.hasPendingStop(member.identity.pid)) == true
    }

    private var inOrder: [Member] { members.values.sorted { $0.order < $1.order } }

    private func add(
        _ process: HeldProcess, below parent: Int32, mayPendOurs: Bool = false, isStopped: Bool = false
    ) {
        lastOrder += 1
        members[process.identity] = Member(
            process, below: parent, order: lastOrder, mayPendOurs: mayPendOurs, isStopped: isStopped)
    }

    private func attempt(_ body: () throws(KernelFailure) -> Void) {
        do throws(KernelFailure) {
            try body()
        } catch {
            if !error.isNoSuchProcess { note(error) }
        }
    }

    private func note(_ failure: KernelFailure) {
        if !failures.contains(where: { ($0.operation, $0.errno) == (failure.operation, failure.errno) }) {
            failures.append(failure)
        }
    }
}
