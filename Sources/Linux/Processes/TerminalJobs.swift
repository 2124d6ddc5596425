import CLinux
import Glibc

/// What works in a terminal.
public enum TerminalJob: Equatable, Sendable {
    /// This process works in the foreground.
    case foreground(Int32)
    /// This process group works in the foreground; there may be no process with its id.
    case group(Int32)
    /// This process works in the background: a command with `&`.
    case background(Int32)
}

extension Proc {
    /// What works in a terminal whose session one of `pids` leads, the foreground first:
    ///
    /// - a command that a shell waits for, or the command of a script, even if it is an orphan;
    /// - the leader itself, if it computes, waits for a disk, or waits for one of its children: the `wait` of a shell;
    /// - a background job, unless it is stopped.
    ///
    /// A leader alone that waits for something else, such as a shell at its prompt or an editor, does not count. nil:
    /// there is no such process.
    ///
    /// It may take long: the kernel waits until an execve(2) of a leader is complete.
    ///
    /// - Parameter isForeign: whether a process is an application of its own; a process group that it leads does not
    ///   count.
    public func terminalJob(
        of pids: [Int32], isForeign: (ProcessIdentity) -> Bool = { _ in false }
    ) -> TerminalJob? {
        var leaders: [Int32: Stat] = [:]
        var others: [Stat] = []
        var parents: Set<Int32> = []
        for pid in pids {
            guard let stat = try? stat(pid), !stat.isZombie else { continue }
            parents.insert(stat.parent)
            if stat.terminal == 0 { continue }
            if stat.session == pid { leaders[pid] = stat } else { others.append(stat) }
        }
        others.removeAll { leaders[$0.session]?.terminal != $0.terminal }
        if let job = others.first(where: \.isInForeground) { return .foreground(job.pid) }
        for leader in leaders.values.sorted(by: { $0.pid < $1.pid }) {
            if leader.isInForeground {
                if isAtWork(leader) || parents.contains(leader.pid) && waitsForChildren(leader.pid) {
                    return .foreground(leader.pid)
                }
            } else if Self.hasMembers(leader.foreground) {
                // None of its processes is among `pids`: their parents have ended, or they are zombies, or they belong
                // to an application of its own.
                if let first = try? stat(leader.foreground), first.group == first.pid,
                    first.isZombie || isForeign(first.identity)
                {
                    continue
                }
                return .group(leader.foreground)
            }
        }
        return others.first { $0.state != .stopped }.map { .background($0.pid) }
    }

    /// Whether one of its threads computes or waits for a disk at this moment.
    private func isAtWork(_ leader: Stat) -> Bool {
        if leader.state.isWork { return true }
        for thread in (try? threads(of: leader.pid)) ?? [] where thread != leader.pid {
            if (try? stat(ofThread: thread, in: leader.pid))?.state.isWork == true { return true }
        }
        return false
    }

    /// Whether the leading thread is in wait4(2) or waitid(2), or in rt_sigsuspend(2), in which some shells wait for
    /// SIGCHLD (`/proc/PID/syscall`, proc_pid_syscall(5)). A prompt waits in read(2), select(2) or poll(2). False if
    /// that cannot be determined.
    private func waitsForChildren(_ pid: Int32) -> Bool {
        let call = try? readOnce(pid, "syscall") { $0.signed32() }
        return call.map { clinux_waits_for_child(Int($0)) != 0 } ?? false
    }

    /// Whether a process group exists, with processes of any user.
    private static func hasMembers(_ group: Int32) -> Bool {
        group > 1 && (kill(-group, 0) == 0 || errno == EPERM)
    }
}

extension Proc.Stat {
    fileprivate var isInForeground: Bool { foreground == group }
    fileprivate var isZombie: Bool { state == .zombie || state == .dead }
}

extension Proc.Stat.State {
    fileprivate var isWork: Bool { self == .running || self == .diskSleep }
}
