import Glibc

/// An application's processes: the main process and its descendants, without those that are, or descend
/// from, applications of their own.
///
/// A process whose parents have all ended belongs to the process that adopted it, and so to no extent.
public enum Extent {
    /// The extent as one walk finds it, parents first, without zombies; empty if `main` is gone.
    ///
    /// `isForeign` says whether a process is an application of its own; it is not called for `main`.
    public static func members(
        of main: ProcessIdentity, proc: Proc, isForeign: (ProcessIdentity) -> Bool
    ) -> [ProcessIdentity] {
        var walk = ExtentWalk(from: main)
        _ = walk.proceed(proc, .unlimited, isForeign: isForeign)
        return walk.found
    }

    /// Signals only one process, through its pidfd, and only if all four of its user ids are `uid` at that moment.
    public static func signal(
        _ signal: Int32, toOnly process: ProcessIdentity, owner uid: UInt32, proc: Proc
    ) throws(KernelFailure) {
        try HeldProcess(process, proc: proc).signal(signal, owner: uid, proc: proc)
    }
}

/// Sends one signal to every process of an extent, parents first; SIGKILL reaches the main process last. Each process
/// is signalled through its pidfd, and only if all four of its user ids are `uid` at that moment. If they are not,
/// `EPERM` is recorded, and its descendants are left alone too. A process that is gone is not a failure.
/// Works piece by piece.
public final class SignalledExtent {
    /// The failures, each once, and only the first of many of one kind (`FailureList`).
    public var failures: [KernelFailure] { list.failures }
    /// The processes that were signalled, or must be signalled.
    public var members: [ProcessIdentity] { held.map(\.identity) }

    private let proc: Proc
    private let owner: UInt32
    private let signal: Int32
    private let main: ProcessIdentity
    private var list = FailureList()
    private var held: [HeldProcess] = []
    private var known: Set<ProcessIdentity> = []
    private var outOfReach: Set<ProcessIdentity> = []
    private var next = 0
    private var offspring: Offspring?
    /// Children that were found and must still be held.
    private var born: ArraySlice<ProcessIdentity> = []
    private var knownBefore = 0
    /// Two walks that agree: one finds the set, the other finds no new process. An application that may fork meanwhile
    /// is stopped first (`StoppedExtent`).
    private var rounds = 3
    private var isGrown = false

    /// Signals no process yet.
    public init(_ signal: Int32, to main: ProcessIdentity, owner uid: UInt32, proc: Proc) {
        self.proc = proc
        self.signal = signal
        self.main = main
        owner = uid
    }

    /// Continues; true: all processes have the signal.
    public func proceed(_ budget: Budget, isForeign: (ProcessIdentity) -> Bool) -> Bool {
        if known.isEmpty { hold(main) }
        if !isGrown {
            guard grow(budget, isForeign) else { return false }
            isGrown = true
            next = 0
            // With SIGKILL in the reverse order, for the reason that `StoppedExtent.kill` gives.
            if signal == SIGKILL { held.reverse() }
        }
        while next < held.count {
            let process = held[next]
            // It may have been registered since it was found.
            if process.identity == main || !isForeign(process.identity) { send(to: process) }
            next += 1
            if next < held.count, budget.spend() { return false }
        }
        return true
    }

    private func grow(_ budget: Budget, _ isForeign: (ProcessIdentity) -> Bool) -> Bool {
        while rounds > 0 {
            if next == 0, offspring == nil, born.isEmpty { knownBefore = known.count }
            while next < held.count {
                guard grow(below: held[next], budget, isForeign) else { return false }
                next += 1
                if budget.spend() { return false }
            }
            next = 0
            rounds = known.count > knownBefore ? rounds - 1 : 0
        }
        return true
    }

    private func grow(
        below parent: HeldProcess, _ budget: Budget, _ isForeign: (ProcessIdentity) -> Bool
    ) -> Bool {
        guard !outOfReach.contains(parent.identity) else { return true }
        if born.isEmpty {
            var children = offspring ?? Offspring(of: parent.identity)
            offspring = nil
            guard let found = children.proceed(proc, budget) else {
                offspring = children
                return false
            }
            born = found.filter { !known.contains($0) }[...]
        }
        while let child = born.popFirst() {
            guard known.count < ExtentWalk.mostProcesses else {
                born = []
                list.add(
                    KernelFailure(operation: "walk extent", subject: "process \(main)", errno: E2BIG))
                return true
            }
            if isForeign(child) {
                known.insert(child)
            } else {
                hold(child)
            }
            if budget.spend(), !born.isEmpty { return false }
        }
        return true
    }

    private func send(to process: HeldProcess) {
        guard !outOfReach.contains(process.identity) else { return }
        do throws(KernelFailure) {
            try process.signal(signal, owner: owner, proc: proc)
        } catch {
            if !error.isNoSuchProcess { exclude(process.identity, error) }
        }
    }

    private func hold(_ identity: ProcessIdentity) {
        known.insert(identity)
        do throws(KernelFailure) {
            let process = try HeldProcess(identity, proc: proc)
            // Checked here already, so that nothing below a process that is not ours is walked.
            try process.checkOwner(owner, proc: proc)
            held.append(process)
        } catch {
            if !error.isNoSuchProcess { exclude(identity, error) }
        }
    }

    private func exclude(_ identity: ProcessIdentity, _ failure: KernelFailure) {
        outOfReach.insert(identity)
        list.add(failure)
    }
}
