import Glibc
import TestSupport
import Testing

@testable import Linux

extension SignalTests {
    @Suite("Stops by signal, of real processes")
    struct SignalStopTests {
        let proc = Proc()
        static let python = Machine.hasPython

        @Test("a stop that another process takes back each time is contested")
        func contested() throws {
            let child = try Child.idle()
            let stop = SignalStop(proc: proc, main: try proc.identity(of: child.pid), owner: getuid())
            for _ in 0..<6 {
                #expect(stop.stop { _ in false } == .pending)
                // It is continued before kill(2) returns.
                kill(child.pid, SIGCONT)
            }
            #expect(stop.stop { _ in false } == .contested)
            stop.release()
        }

        @Test(
            "a whole tree is stopped except for foreign processes; a release continues it",
            .enabled(if: python, "needs python3"))
        func tree() throws {
            let child = try Child(python: treeScript)
            _ = try child.numbers()
            let main = try proc.identity(of: child.pid)
            let all = Extent.members(of: main, proc: proc) { _ in false }
            let foreign = Extent.members(of: all[1], proc: proc) { _ in false }
            let stop = SignalStop(proc: proc, main: main, owner: getuid())
            #expect(complete(stop) { $0 == all[1] })
            #expect(stop.stoppedByUs.count == 4)
            #expect(stop.stoppedByUs.first == main)
            for process in all {
                #expect(try proc.isStopped(process) == !foreign.contains(process))
            }
            stop.release()
            #expect(try eventually { try all.allSatisfy { try !proc.isStopped($0) } })
        }

        @Test(
            "a tree that keeps forking becomes stable, and runs to its end after the release",
            .enabled(if: python, "needs python3"))
        func spawner() throws {
            let child = try Child(python: spawnerScript)
            _ = try child.line()
            let main = try proc.identity(of: child.pid)
            let stop = SignalStop(proc: proc, main: main, owner: getuid())
            #expect(complete(stop))
            #expect(stop.failures == [])
            let group = try livingMembers(ofGroup: child.pid)
            #expect(Set(group.map(\.identity)) == Set(stop.stoppedByUs))
            #expect(group.allSatisfy { $0.state == .stopped })
            // No process is new, and none was continued.
            #expect(stop.stop { _ in false } == .complete)
            #expect(try livingMembers(ofGroup: child.pid).count == group.count)
            stop.release()
            #expect(try child.line() == "end")
            #expect(try eventually { try livingMembers(ofGroup: child.pid).count == 401 })
        }

        @Test(
            "another user's child and its descendants are left alone and recorded once",
            .enabled(if: Machine.isRoot && python, "needs root and python3"))
        func otherOwner() throws {
            let child = try Child(python: otherOwnerScript)
            let pids = try child.numbers()
            let main = try proc.identity(of: child.pid)
            let other = try proc.identity(of: pids[1])
            let below = try proc.identity(of: pids[2])
            let ours = try proc.identity(of: pids[3])
            #expect(try proc.status(below.pid).owner.isWholly(0))
            let stop = SignalStop(proc: proc, main: main, owner: 0)
            #expect(complete(stop))
            #expect(stop.stop { _ in false } == .complete)
            #expect(stop.stoppedByUs == [main, ours])
            #expect(try proc.isStopped(main) && proc.isStopped(ours))
            #expect(try !proc.isStopped(other) && !proc.isStopped(below))
            #expect(
                stop.failures == [
                    KernelFailure(
                        operation: "check before a signal that user 0 alone owns",
                        subject: "process \(other)",
                        errno: EPERM)
                ])
            stop.release()
        }

        @Test(
            "a main process of another user is never stopped",
            .enabled(if: Machine.isRoot, "needs root"))
        func foreignMain() throws {
            let child = try Child.idle()
            let main = try proc.identity(of: child.pid)
            let stop = SignalStop(proc: proc, main: main, owner: 65534)
            guard case .refused(let failure) = stop.stop(isForeign: { _ in false }) else {
                Issue.record("it is not refused")
                return
            }
            #expect(failure.errno == EPERM && stop.failures == [failure])
            #expect(stop.stoppedByUs == [])
            #expect(try !proc.isStopped(main))
        }

        @Test("an impostor with the same id is not stopped")
        func impostor() throws {
            let child = try Child.idle()
            let main = try proc.identity(of: child.pid)
            let other = ProcessIdentity(pid: main.pid, startTime: main.startTime + 1)
            let stop = SignalStop(proc: proc, main: other, owner: getuid())
            #expect(stop.stop { _ in false } == .pending)
            #expect(stop.stoppedByUs == [])
            #expect(try !proc.isStopped(main))
        }
    }
}

/// Stops it as a caller should: again after a short time while it is pending.
func complete(
    _ stop: SignalStop, isForeign: (ProcessIdentity) -> Bool = { _ in false }
) -> Bool {
    eventually { stop.stop(isForeign: isForeign) == .complete }
}
