import Glibc
import TestSupport
import Testing

@testable import Linux

extension SignalTests {
    @Suite("StoppedExtent, on real processes")
    struct StoppedExtentTests {
        let proc = Proc()
        static let python = Machine.hasPython

        /// The processes of `treeScript`, all of them stopped; they end when it is released.
        private final class StoppedTree {
            let child: Child
            let main: ProcessIdentity
            let extent: StoppedExtent

            init() throws {
                child = try Child(python: treeScript)
                _ = try child.numbers()
                main = try Proc().identity(of: child.pid)
                extent = StoppedExtent(proc: Proc(), main: main, owner: getuid())
                #expect(complete(extent))
            }
        }

        @Test(
            "a process that leaves the extent runs, unless another process has stopped it as well",
            .enabled(if: python, "needs python3"), arguments: [false, true])
        func handedOver(isStoppedByOthers: Bool) throws {
            let tree = try StoppedTree()
            let leaving = try #require(tree.extent.members.dropFirst().first)
            if isStoppedByOthers { kill(leaving.pid, SIGSTOP) }
            let other = StoppedExtent(proc: proc, main: leaving, owner: getuid())
            #expect(tree.extent.handOver(leaving, to: other))
            #expect(!tree.extent.holds(leaving))
            #expect(!other.holds(leaving))
            tree.extent.release()
            other.release()
            #expect(try eventually { try !proc.isStopped(tree.main) })
            if isStoppedByOthers {
                #expect(try proc.isStopped(leaving))
                kill(leaving.pid, SIGCONT)
            }
            #expect(try eventually { try !proc.isStopped(leaving) })
        }

        @Test(
            "a stop is out of reach if only its main process must not be stopped",
            .enabled(if: python, "needs python3"))
        func mainOutOfReach() throws {
            let child = try Child(python: treeScript)
            _ = try child.numbers()
            let main = try proc.identity(of: child.pid)
            let below = Extent.members(of: main, proc: proc) { _ in false }[1]
            kill(below.pid, SIGSTOP)
            #expect(try eventually { try proc.isStopped(below) })
            let extent = StoppedExtent(proc: proc, main: main, owner: getuid() + 1)
            extent.adopt([below])
            #expect(extent.holds(below))
            #expect(!extent.isMainOutOfReach)
            #expect(extent.stop { _ in false } != .complete)
            #expect(extent.isMainOutOfReach)
            #expect(extent.failures.map(\.errno) == [EPERM])
            extent.release()
            // It is another user's by now, as it seems, and so it is left as it is.
            kill(below.pid, SIGCONT)
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
            let extent = StoppedExtent(proc: proc, main: main, owner: getuid())
            #expect(complete(extent) { $0 == all[1] })
            #expect(extent.members.count == 4)
            #expect(extent.members.first == main)
            #expect(extent.stoppedByUs == extent.members)
            for process in all {
                #expect(try proc.isStopped(process) == !foreign.contains(process))
            }
            extent.release()
            #expect(try eventually { try all.allSatisfy { try !proc.isStopped($0) } })
        }

        @Test(
            "a process that was stopped before is a member, and is not continued",
            .enabled(if: python, "needs python3"))
        func stoppedBefore() throws {
            let child = try Child(python: treeScript)
            _ = try child.numbers()
            let main = try proc.identity(of: child.pid)
            let all = Extent.members(of: main, proc: proc) { _ in false }
            kill(all[2].pid, SIGSTOP)
            #expect(try eventually { try proc.isStopped(all[2]) })
            let extent = StoppedExtent(proc: proc, main: main, owner: getuid())
            #expect(complete(extent))
            #expect(Set(extent.members) == Set(all))
            #expect(Set(extent.stoppedByUs) == Set(all).subtracting([all[2]]))
            extent.release()
            #expect(try eventually { try all.allSatisfy { try proc.isStopped($0) == ($0 == all[2]) } })
        }

        @Test("spared processes stay stopped", .enabled(if: python, "needs python3"))
        func spared() throws {
            let tree = try StoppedTree()
            defer { withExtendedLifetime(tree) {} }
            let (main, extent) = (tree.main, tree.extent)
            let all = extent.members
            extent.release(sparing: [all[3], main])
            #expect(
                try eventually {
                    try all.allSatisfy { try proc.isStopped($0) == ($0 == all[3] || $0 == main) }
                })
            #expect(extent.stoppedByUs == [])
        }

        @Test(
            "a tree that keeps forking becomes stable, and runs to its end after the release",
            .enabled(if: python, "needs python3"))
        func spawner() throws {
            let child = try Child(python: spawnerScript)
            _ = try child.line()
            let main = try proc.identity(of: child.pid)
            let extent = StoppedExtent(proc: proc, main: main, owner: getuid())
            #expect(complete(extent))
            #expect(extent.failures == [])
            let group = try livingMembers(ofGroup: child.pid)
            #expect(Set(group.map(\.identity)) == Set(extent.members))
            #expect(group.allSatisfy { $0.state == .stopped })
            // No process is new, and none was continued.
            #expect(extent.proceed { _ in false } == .complete)
            #expect(try livingMembers(ofGroup: child.pid).count == group.count)
            extent.release()
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
            let extent = StoppedExtent(proc: proc, main: main, owner: 0)
            #expect(complete(extent))
            #expect(extent.proceed { _ in false } == .complete)
            #expect(extent.members == [main, ours])
            #expect(try proc.isStopped(main) && proc.isStopped(ours))
            #expect(try !proc.isStopped(other) && !proc.isStopped(below))
            #expect(
                extent.failures == [
                    KernelFailure(
                        operation: "check before a signal that user 0 alone owns",
                        subject: "process \(other)",
                        errno: EPERM)
                ])
            extent.release()
        }

        @Test(
            "a main process of another user is never stopped",
            .enabled(if: Machine.isRoot, "needs root"))
        func foreignMain() throws {
            let child = try Child.idle()
            let main = try proc.identity(of: child.pid)
            let extent = StoppedExtent(proc: proc, main: main, owner: 65534)
            for _ in 0..<5 { #expect(extent.stop { _ in false } == .pending) }
            #expect(extent.failures.map(\.errno) == [EPERM])
            #expect(extent.members == [])
            #expect(try !proc.isStopped(main))
        }

        @Test("an impostor with the same id is not stopped")
        func impostor() throws {
            let child = try Child.idle()
            let main = try proc.identity(of: child.pid)
            let other = ProcessIdentity(pid: main.pid, startTime: main.startTime + 1)
            let extent = StoppedExtent(proc: proc, main: other, owner: getuid())
            #expect(extent.stop { _ in false } == .pending)
            #expect(extent.members == [])
            #expect(try !proc.isStopped(main))
        }

        @Test("a process that another process continued meanwhile is stopped again")
        func continued() throws {
            let child = try Child.idle()
            let main = try proc.identity(of: child.pid)
            let extent = StoppedExtent(proc: proc, main: main, owner: getuid())
            #expect(complete(extent))
            kill(child.pid, SIGCONT)
            #expect(try eventually { try !proc.isStopped(main) })
            #expect(eventually { extent.proceed { _ in false } == .complete })
            #expect(try proc.isStopped(main))
        }

        @Test(
            "a stop by another process that follows the value's own is seen, also by a value that takes over")
        func othersStop() throws {
            let child = try Child.idle()
            let main = try proc.identity(of: child.pid)
            let extent = StoppedExtent(proc: proc, main: main, owner: getuid())
            #expect(complete(extent))
            for _ in 0..<2 {
                #expect(!extent.hasOthersStop)
                kill(child.pid, SIGSTOP)
                #expect(extent.hasOthersStop)
                kill(child.pid, SIGCONT)
                #expect(try eventually { try !proc.isStopped(main) })
                #expect(!extent.hasOthersStop)
                #expect(eventually { extent.proceed { _ in false } == .complete })
            }
            let later = StoppedExtent(proc: proc, main: main, owner: getuid())
            later.adopt([main])
            #expect(!later.hasOthersStop)
            kill(child.pid, SIGSTOP)
            #expect(later.hasOthersStop)
        }

        @Test(
            "a member that ended while it was stopped is no longer a member",
            .enabled(if: python, "needs python3")
        )
        func ended() throws {
            let tree = try StoppedTree()
            defer { withExtendedLifetime(tree) {} }
            let extent = tree.extent
            let victim = extent.members[2]
            let pidfd = try PidFD(pid: victim.pid)
            try pidfd.send(SIGKILL)
            #expect(try ready(pidfd.rawValue))
            #expect(extent.proceed { _ in false } == .complete)
            #expect(!extent.members.contains(victim))
            #expect(extent.failures == [])
            extent.release()
        }

        @Test("another value takes over what an earlier one stopped", .enabled(if: python, "needs python3"))
        func adopt() throws {
            let tree = try StoppedTree()
            defer { withExtendedLifetime(tree) {} }
            let (main, all) = (tree.main, tree.extent.stoppedByUs)
            let later = StoppedExtent(proc: proc, main: main, owner: getuid())
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
            let (main, all) = (tree.main, tree.extent.stoppedByUs)
            Glibc.kill(main.pid, SIGCONT)
            let later = StoppedExtent(proc: proc, main: main, owner: getuid())
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
            let extent = StoppedExtent(proc: proc, main: main, owner: getuid())
            #expect(complete(extent))
            #expect(extent.stoppedByUs == [main])
            extent.release()
            #expect(try eventually { try !proc.isStopped(main) })
        }
    }
}

/// Stops it as a caller should: again after a short time while it is pending.
func complete(
    _ extent: StoppedExtent, isForeign: (ProcessIdentity) -> Bool = { _ in false }
) -> Bool {
    if extent.stop(isForeign: isForeign) == .complete { return true }
    return eventually { extent.proceed(isForeign: isForeign) == .complete }
}
