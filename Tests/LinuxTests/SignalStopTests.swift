import Glibc
import TestSupport
import Testing

@testable import Linux

extension SignalTests {
    @Suite("Stops by signal, of real processes")
    struct SignalStopTests {
        let proc = Proc()
        static let python = Machine.hasPython

        /// The processes of `treeScript`, all of them stopped; they end when it is released.
        private final class StoppedTree {
            let child: Child
            let main: ProcessIdentity
            let stop: SignalStop

            init() throws {
                child = try Child(python: treeScript)
                _ = try child.numbers()
                main = try Proc().identity(of: child.pid)
                stop = SignalStop(proc: Proc(), main: main, owner: getuid())
                #expect(complete(stop))
            }
        }

        @Test(
            "a process that becomes an application runs with those below it, unless another process has stopped it",
            .enabled(if: python, "needs python3"), arguments: [false, true])
        func leaving(isStoppedByOthers: Bool) throws {
            let tree = try StoppedTree()
            defer { withExtendedLifetime(tree) {} }
            let leaving = try #require(tree.stop.stoppedByUs.dropFirst().first)
            let below = Extent.members(of: leaving, proc: proc) { _ in false }.dropFirst()
            if isStoppedByOthers { kill(leaving.pid, SIGSTOP) }
            tree.stop.release(from: leaving)
            #expect(!tree.stop.holds(leaving) && !below.contains(where: tree.stop.holds))
            #expect(try eventually { try below.allSatisfy { try !proc.isStopped($0) } })
            #expect(try proc.isStopped(tree.main))
            #expect(try eventually { try proc.isStopped(leaving) == isStoppedByOthers })
            kill(leaving.pid, SIGCONT)
        }

        @Test(
            "a kill spares a process that has become an application, and continues it",
            .enabled(if: python, "needs python3"))
        func killSparing() throws {
            let tree = try StoppedTree()
            defer { withExtendedLifetime(tree) {} }
            let spared = Extent.members(of: tree.stop.stoppedByUs[1], proc: proc) { _ in false }
            let killed = tree.stop.kill { $0 == spared[0] }
            #expect(killed.count == 4 && killed.last == tree.main && !killed.contains(where: spared.contains))
            #expect(tree.stop.failures == [])
            #expect(try eventually { try !proc.isStopped(spared[0]) })
            for process in spared { kill(process.pid, SIGKILL) }
        }

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
            "a process that was stopped before is not continued",
            .enabled(if: python, "needs python3"))
        func stoppedBefore() throws {
            let child = try Child(python: treeScript)
            _ = try child.numbers()
            let main = try proc.identity(of: child.pid)
            let all = Extent.members(of: main, proc: proc) { _ in false }
            kill(all[2].pid, SIGSTOP)
            #expect(try eventually { try proc.isStopped(all[2]) })
            let stop = SignalStop(proc: proc, main: main, owner: getuid())
            #expect(complete(stop))
            #expect(Set(stop.stoppedByUs) == Set(all).subtracting([all[2]]))
            stop.release()
            #expect(try eventually { try all.allSatisfy { try proc.isStopped($0) == ($0 == all[2]) } })
        }

        @Test("spared processes stay stopped", .enabled(if: python, "needs python3"))
        func spared() throws {
            let tree = try StoppedTree()
            defer { withExtendedLifetime(tree) {} }
            let (main, stop) = (tree.main, tree.stop)
            let all = stop.stoppedByUs
            stop.release(sparing: [all[3], main])
            #expect(
                try eventually {
                    try all.allSatisfy { try proc.isStopped($0) == ($0 == all[3] || $0 == main) }
                })
            #expect(stop.stoppedByUs == [])
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

        @Test("a process that another process continued meanwhile is stopped again")
        func continued() throws {
            let child = try Child.idle()
            let main = try proc.identity(of: child.pid)
            let stop = SignalStop(proc: proc, main: main, owner: getuid())
            #expect(complete(stop))
            kill(child.pid, SIGCONT)
            #expect(try eventually { try !proc.isStopped(main) })
            #expect(eventually { stop.stop { _ in false } == .complete })
            #expect(try proc.isStopped(main))
        }

        @Test(
            "a stop by another process that follows the value's own is seen, also by a value that takes over")
        func othersStop() throws {
            let child = try Child.idle()
            let main = try proc.identity(of: child.pid)
            let stop = SignalStop(proc: proc, main: main, owner: getuid())
            #expect(complete(stop))
            for _ in 0..<2 {
                #expect(!stop.hasOthersStop)
                kill(child.pid, SIGSTOP)
                #expect(stop.hasOthersStop)
                kill(child.pid, SIGCONT)
                #expect(try eventually { try !proc.isStopped(main) })
                #expect(!stop.hasOthersStop)
                #expect(eventually { stop.stop { _ in false } == .complete })
            }
            let later = SignalStop(proc: proc, main: main, owner: getuid())
            later.adopt([main])
            #expect(!later.hasOthersStop)
            kill(child.pid, SIGSTOP)
            #expect(later.hasOthersStop)
        }

        @Test(
            "a process that ended while it was stopped is not in the way",
            .enabled(if: python, "needs python3")
        )
        func ended() throws {
            let tree = try StoppedTree()
            defer { withExtendedLifetime(tree) {} }
            let stop = tree.stop
            let victim = stop.stoppedByUs[2]
            let pidfd = try PidFD(pid: victim.pid)
            try pidfd.send(SIGKILL)
            #expect(try ready(pidfd.rawValue))
            #expect(stop.stop { _ in false } == .complete)
            #expect(stop.failures == [])
            stop.release()
        }

        @Test("another value takes over what an earlier one stopped", .enabled(if: python, "needs python3"))
        func adopt() throws {
            let tree = try StoppedTree()
            defer { withExtendedLifetime(tree) {} }
            let (main, all) = (tree.main, tree.stop.stoppedByUs)
            let later = SignalStop(proc: proc, main: main, owner: getuid())
            later.adopt(all + [ProcessIdentity(pid: main.pid, startTime: 1)])
            #expect(later.stoppedByUs == all)
            #expect(later.stop { _ in false } == .complete)
            later.release()
            #expect(try eventually { try all.allSatisfy { try !proc.isStopped($0) } })
        }

        @Test(
            "another value takes over the children of a main process that was continued meanwhile",
            .enabled(if: python, "needs python3"))
        func adoptChildren() throws {
            let tree = try StoppedTree()
            defer { withExtendedLifetime(tree) {} }
            let (main, all) = (tree.main, tree.stop.stoppedByUs)
            Glibc.kill(main.pid, SIGCONT)
            let later = SignalStop(proc: proc, main: main, owner: getuid())
            later.adopt(all)
            #expect(Set(later.stoppedByUs) == Set(all).subtracting([main]))
            #expect(complete(later))
            #expect(Set(later.stoppedByUs) == Set(all))
            later.release()
            #expect(try eventually { try all.allSatisfy { try !proc.isStopped($0) } })
        }

        @Test("threads of a zombie leader are stopped too", .enabled(if: python, "needs python3"))
        func zombieLeader() throws {
            let child = try zombieLeaderChild()
            let main = try proc.identity(of: child.pid)
            #expect(try eventually { try proc.stat(child.pid).state == .zombie })
            let stop = SignalStop(proc: proc, main: main, owner: getuid())
            #expect(complete(stop))
            #expect(stop.stoppedByUs == [main])
            stop.release()
            #expect(try eventually { try !proc.isStopped(main) })
        }
    }
}

/// Stops it as a caller should: again after a short time while it is pending.
func complete(
    _ stop: SignalStop, isForeign: (ProcessIdentity) -> Bool = { _ in false }
) -> Bool {
    eventually { stop.stop(isForeign: isForeign) == .complete }
}
