import Glibc
import LifeCycle
import Linux

/// The record of the processes that the daemon holds of one application. It is enough to release all of them,
/// and no other process, without any other information.
///
///     freeze PATH INODE UID PID START      we froze this cgroup, or are about to: whose, and with which process
///     stop UID PID START [PID START]…      we stop this process and its descendants by signal; the others were stopped
///                                          before
///     stopped-process PID START UID        this process has our SIGSTOP
///
/// There may be thousands of the last kind. They are in a file of their own, and the application's file only says that
/// there are some:
///
///     stopped-processes
struct Holding: Equatable {
    struct Freeze: Equatable {
        let path: String
        /// The kernel's number for the cgroup, which is never reused; nil if it is not known.
        let identifier: UInt64?
        let user: UInt32
        let main: ProcessIdentity
    }

    struct Stop: Equatable {
        let user: UInt32
        let main: ProcessIdentity
        /// Processes that were already stopped, and that are not ours to continue.
        let standing: [ProcessIdentity]
    }

    struct Stopped: Hashable {
        let process: ProcessIdentity
        let user: UInt32
    }

    var freeze: Freeze?
    var stop: Stop?
    var stopped: [Stopped] = []
    /// The file that lists the stopped processes is damaged or lost.
    var isListLost = false

    var isEmpty: Bool { self == Holding() }

    /// The application's main process, as far as it is recorded.
    var main: ProcessIdentity? { freeze?.main ?? stop?.main }

    init() {}

    /// The present holds of the application.
    init(of application: Registered) {
        switch application.hold {
        case .frozen(let path, let identifier)?:
            freeze = Freeze(
                path: path, identifier: identifier, user: application.user, main: application.process)
        case .signalled?:
            stop = Stop(user: application.user, main: application.process, standing: [])
        case nil: break
        }
    }

    /// What a daemon takes over.
    var hold: Hold? {
        if let freeze, let identifier = freeze.identifier {
            return .frozen(path: freeze.path, identifier: identifier)
        }
        return stop != nil || !stopped.isEmpty ? .signalled : nil
    }

    /// The valid lines of a record. An invalid line does not affect the others.
    init(_ record: Record) {
        freeze =
            record.understood("freeze") { fields -> Freeze? in
                guard let path = fields.text(), let inode: UInt64 = fields.number(),
                    let user: UInt32 = fields.number(), let main = ProcessID(&fields)
                else { return nil }
                return Freeze(
                    path: path, identifier: inode == 0 ? nil : inode, user: user, main: main.identity)
            }.first
        stop =
            record.understood("stop") { fields -> Stop? in
                guard let user: UInt32 = fields.number(), let main = ProcessID(&fields),
                    let standing = fields.all({ ProcessID(&$0) })
                else { return nil }
                return Stop(user: user, main: main.identity, standing: standing.map(\.identity))
            }.first
        stopped = record.understood("stopped-process") { fields -> Stopped? in
            guard let process = ProcessID(&fields), let user: UInt32 = fields.number() else { return nil }
            return Stopped(process: process.identity, user: user)
        }
    }

    /// All lines.
    var lines: [Record.Line] {
        means
            + stopped.map {
                Record.Line("stopped-process", ProcessID($0.process).fields + [String($0.user)])
            }
    }

    /// How the application is held, without the individual processes.
    var briefLines: [Record.Line] {
        stopped.isEmpty ? means : means + [Record.Line("stopped-processes")]
    }

    /// Whether a line is one of `briefLines`.
    static func isBrief(_ line: Record.Line) -> Bool {
        ["freeze", "stop", "stopped-processes"].contains(line.key)
    }

    /// Whether a line describes what is held.
    static func isOne(_ line: Record.Line) -> Bool { isBrief(line) || line.key == "stopped-process" }

    private var means: [Record.Line] {
        var lines: [Record.Line] = []
        if let freeze {
            let whose = [String(freeze.identifier ?? 0), String(freeze.user)] + ProcessID(freeze.main).fields
            lines.append(Record.Line("freeze", [freeze.path] + whose))
        }
        if let stop {
            let standing = stop.standing.flatMap { ProcessID($0).fields }
            lines.append(
                Record.Line("stop", [String(stop.user)] + ProcessID(stop.main).fields + standing))
        }
        return lines
    }

    /// Adds the content of another file about the same application. If both describe the same hold, this one
    /// counts.
    func with(_ other: Holding) -> Holding {
        var both = self
        both.freeze = freeze ?? other.freeze
        both.stop = stop ?? other.stop
        let known = Set(stopped)
        both.stopped += other.stopped.filter { !known.contains($0) }
        both.isListLost = isListLost || other.isListLost
        return both
    }
}

extension Holding.Freeze {
    /// The cgroup, if it exists and is the recorded one.
    func cgroup(in hierarchy: UnifiedHierarchy) -> Cgroup? {
        guard let cgroup = Cgroup(path: path, in: hierarchy) else { return nil }
        guard let identifier else { return (try? cgroup.owner()) == user ? cgroup : nil }
        return (try? cgroup.identifier()) == identifier ? cgroup : nil
    }
}

extension Holding.Freeze {
    /// The cgroup of a process, or its application's unit, if it belongs to the process's user and is frozen.
    /// No record says any longer whether the daemon froze it.
    static func found(of main: ProcessIdentity, user: UInt32, proc: Proc, in hierarchy: UnifiedHierarchy)
        -> Self?
    {
        guard (try? proc.identity(of: main.pid)) == main,
            let here = try? Cgroup.of(main.pid, in: hierarchy, proc: proc), !here.isRoot
        else { return nil }
        for cgroup in [here.applicationUnit, here].compactMap({ $0 })
        where (try? cgroup.owner()) == user && (try? cgroup.wantsFrozen()) == true {
            return Self(path: cgroup.path, identifier: try? cgroup.identifier(), user: user, main: main)
        }
        return nil
    }
}

// MARK: Releasing

extension Holding {
    /// The result of a release.
    struct Outcome {
        var thawed: Cgroup?
        var continued = 0
        var failures: [KernelFailure] = []
        /// Its cgroup could not be thawed or searched for: one of the failures.
        var mayBeFrozen = false

        /// Whether something may still be held. A process that is not wholly its user's is not ours to continue.
        var isHeld: Bool {
            mayBeFrozen || failures.contains { !$0.isNoSuchProcess && $0.errno != EPERM }
        }

        /// In words; nil if there was nothing to release.
        var description: String? {
            var words: [String] = []
            if let thawed { words.append("thawed \(thawed)") }
            if continued > 0 { words.append("continued \(continued) of its processes") }
            return words.isEmpty ? nil : words.joined(separator: ", ")
        }
    }

    /// The processes that have our SIGSTOP. A daemon that was killed while it stopped an application has not
    /// recorded which processes it had already stopped: these are all that are stopped now and were not
    /// stopped before. A process that was registered since does not belong to this application.
    func stoppedProcesses(proc: Proc, isForeign: (ProcessIdentity) -> Bool) -> [ProcessIdentity] {
        let known = stopped.map(\.process).filter { $0 == stop?.main || !isForeign($0) }
        guard let stop else { return known }
        var members = Extent.members(of: stop.main, proc: proc, isForeign: isForeign)
        if isListLost { members += Self.orphans(in: stop, proc: proc, isForeign: isForeign) }
        var others = Set(known + stop.standing)
        return known + members.filter { others.insert($0).inserted }
    }

    /// The stopped processes of a stop whose parents have ended, as far as they can be found without a list: they are in
    /// the main process's session (setsid(2)), and their new parents are not.
    private static func orphans(
        in stop: Stop, proc: Proc, isForeign: (ProcessIdentity) -> Bool
    ) -> [ProcessIdentity] {
        guard let main = try? proc.stat(stop.main.pid), main.identity == stop.main,
            let all = try? proc.processes()
        else { return [] }
        return all.compactMap { pid in
            guard let stat = try? proc.stat(pid), stat.state == .stopped, stat.session == main.session,
                stat.parent <= 1 || (try? proc.stat(stat.parent))?.session != main.session,
                (try? proc.status(pid))?.owner.isWholly(stop.user) == true,
                !proc.lineage(of: pid).contains(where: isForeign)
            else { return nil }
            return stat.identity
        }
    }

    /// Thaws and continues the held cgroups and processes, if they still exist and are the same. A cgroup is
    /// identified by its number, a process by its start time. Only those that are frozen or stopped are
    /// affected.
    func release(
        proc: Proc, hierarchy: UnifiedHierarchy?, sparing: ProcessIdentity?,
        isForeign: (ProcessIdentity) -> Bool
    ) -> Outcome {
        var outcome = Outcome()
        if let freeze, let hierarchy, let cgroup = freeze.cgroup(in: hierarchy) {
            do throws(KernelFailure) {
                if try cgroup.endFreeze() { outcome.thawed = cgroup }
            } catch {
                if !error.isNoSuchCgroup {
                    outcome.failures.append(error)
                    outcome.mayBeFrozen = true
                }
            }
        }
        guard let user = stop?.user ?? stopped.first?.user,
            let main = stop?.main ?? stopped.first?.process
        else { return outcome }
        let extent = SignalStop(proc: proc, main: main, owner: user)
        extent.adopt(stoppedProcesses(proc: proc, isForeign: isForeign).filter { $0 != sparing })
        outcome.continued = extent.stoppedByUs.count
        extent.release()
        outcome.failures += extent.failures
        return outcome
    }
}
