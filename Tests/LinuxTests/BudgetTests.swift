import Glibc
import TestSupport
import Testing

@testable import Linux

extension SignalTests {
    /// Long work is done in pieces: other work gets its turn, and the result is the same.
    @Suite("Walks within a budget, on real processes", .enabled(if: Machine.hasPython, "needs python3"))
    struct BudgetTests {
        let proc = Proc()

        /// Keeps the children; a child is killed when it is released.
        private final class Family {
            var children: [Child] = []
        }
        private let alive = Family()

        private func nobody(_: ProcessIdentity) -> Bool { false }

        /// A process with so many children, each with one child of its own.
        private func family(_ count: Int = 20) throws -> (child: Child, main: ProcessIdentity) {
            let child = try Child(
                python: """
                    for i in range(\(count)):
                        if os.fork() == 0:
                            os.fork()
                            while True: signal.pause()
                    while len(open('/proc/self/task/%d/children' % os.getpid()).read().split()) < \(count):
                        pass
                    say('on')
                    while True: signal.pause()
                    """)
            alive.children.append(child)
            _ = try child.line()
            let main = try proc.identity(of: child.pid)
            #expect(eventually { members(main).count == 2 * count + 1 })
            return (child, main)
        }

        private func members(_ main: ProcessIdentity) -> [ProcessIdentity] {
            Extent.members(of: main, proc: proc, isForeign: nobody)
        }

        private func isGone(_ process: ProcessIdentity) -> Bool {
            guard let stat = try? proc.stat(process.pid), stat.startTime == process.startTime else {
                return true
            }
            return stat.state == .zombie || stat.state == .dead
        }

        private func stopped(_ processes: [ProcessIdentity]) -> Int {
            processes.count { (try? proc.isStopped($0)) == true }
        }

        @Test("an interrupted walk finds the same processes as an uninterrupted one")
        func walk() throws {
            let (_, main) = try family()
            var walk = ExtentWalk(from: main)
            var pieces = 1
            while !walk.proceed(proc, Budget(steps: 3), isForeign: nobody) { pieces += 1 }
            #expect(pieces > 10)
            #expect(walk.found == members(main))
        }

        @Test("a stop in pieces yields and is continued until all processes are stopped")
        func stop() throws {
            let (_, main) = try family()
            let all = members(main)
            let extent = StoppedExtent(proc: proc, main: main, owner: getuid())
            // Or pending, while the main process is not stopped yet.
            #expect(extent.stop(within: Budget(steps: 3), isForeign: nobody) != .complete)
            #expect(stopped(all) < all.count)
            var pieces = 1
            #expect(
                eventually {
                    pieces += 1
                    return extent.proceed(within: Budget(steps: 3), isForeign: nobody) == .complete
                })
            #expect(pieces > 10)
            #expect(stopped(all) == all.count)
            #expect(Set(extent.stoppedByUs) == Set(all))
            #expect(extent.failures == [])
            // The release is done in pieces too, with the main process last.
            #expect(!extent.release(within: Budget(steps: 3)))
            #expect(extent.stoppedByUs.first == main)
            while !extent.release(within: Budget(steps: 3)) {}
            #expect(eventually { stopped(all) == 0 })
            #expect(extent.stoppedByUs == [])
        }

        @Test("a stop that is undone between two pieces leaves no process stopped and can be repeated")
        func takenBack() throws {
            let (_, main) = try family()
            let all = members(main)
            let extent = StoppedExtent(proc: proc, main: main, owner: getuid())
            for pieces in 1...12 {
                for _ in 0..<pieces { _ = extent.stop(within: Budget(steps: 4), isForeign: nobody) }
                extent.release()
                #expect(eventually { stopped(all) == 0 })
            }
            #expect(complete(extent))
            // A stop in the middle of a release also finds the processes that run again already.
            #expect(!extent.release(within: Budget(steps: 5)))
            #expect(complete(extent))
            #expect(stopped(all) == all.count)
            #expect(Set(extent.stoppedByUs) == Set(all))
            extent.release()
        }

        @Test("a process that forks between the pieces is stopped with all its children")
        func forking() throws {
            let child = try Child(
                python: """
                    say('on')
                    for i in range(200):
                        if os.fork() == 0:
                            while True: signal.pause()
                    say('end')
                    while True: signal.pause()
                    """)
            _ = try child.line()
            let main = try proc.identity(of: child.pid)
            let extent = StoppedExtent(proc: proc, main: main, owner: getuid())
            #expect(eventually { extent.stop(within: Budget(steps: 2), isForeign: nobody) == .complete })
            #expect(Set(extent.stoppedByUs) == Set(members(main)))
            #expect(stopped(members(main)) == members(main).count)
            extent.release()
            #expect(try child.line() == "end")
        }

        @Test("a process with hundreds of threads is also examined in pieces")
        func threadsInLists() throws {
            let child = try Child(
                python: """
                    import threading
                    threading.stack_size(65536)
                    libc = ctypes.CDLL(None)
                    for i in range(300): threading.Thread(target=libc.pause, daemon=True).start()
                    say('on')
                    while True: signal.pause()
                    """)
            _ = try child.line()
            let main = try proc.identity(of: child.pid)
            let extent = StoppedExtent(proc: proc, main: main, owner: getuid())
            var pieces = 0
            #expect(
                eventually {
                    pieces += 1
                    return extent.stop(within: Budget(steps: 10), isForeign: nobody) == .complete
                })
            #expect(pieces > 30)
            #expect(try proc.isStopped(main))
            extent.release()
        }

        @Test("a kill in pieces reaches every process")
        func kill() throws {
            let (_, main) = try family()
            let all = members(main)
            let extent = StoppedExtent(proc: proc, main: main, owner: getuid())
            #expect(complete(extent))
            #expect(!extent.kill(within: Budget(steps: 3)))
            #expect(!isGone(main))
            while !extent.kill(within: Budget(steps: 3)) {}
            for process in all { #expect(eventually { isGone(process) }) }
            #expect(extent.failures == [])
        }

        @Test("a stop in pieces spares a process that becomes an application meanwhile")
        func stopSparing() throws {
            for steps in [3, 4, 5, 7] {
                let (_, main) = try family()
                let all = members(main)
                let extent = StoppedExtent(proc: proc, main: main, owner: getuid())
                var registered: Set<ProcessIdentity> = []
                while extent.stop(within: Budget(steps: steps), isForeign: { registered.contains($0) })
                    != .complete
                {
                    // Found, but not signalled yet.
                    if registered.isEmpty,
                        let found = extent.members.first(where: { !extent.holds($0) && $0 != main })
                    {
                        registered = [found]
                    }
                }
                let spared = try #require(registered.first)
                #expect(try !proc.isStopped(spared))
                #expect(!extent.members.contains(spared))
                #expect(stopped(all) >= all.count - 2)
                extent.release()
            }
        }

        @Test("a kill in pieces spares a process that becomes an application meanwhile, and continues it")
        func killSparing() throws {
            let (_, main) = try family()
            let all = members(main)
            let spared = all[5]
            let extent = StoppedExtent(proc: proc, main: main, owner: getuid())
            #expect(complete(extent))
            #expect(!extent.kill(within: Budget(steps: 3)) { _ in false })
            while !extent.kill(within: Budget(steps: 3), isForeign: { $0 == spared }) {}
            for process in all where process != spared { #expect(eventually { isGone(process) }) }
            #expect(eventually { (try? proc.isStopped(spared)) == false })
            #expect(!isGone(spared))
        }

        @Test("a signal in pieces spares a process that becomes an application meanwhile")
        func signalSparing() throws {
            let (_, main) = try family()
            let all = members(main)
            let spared = all[5]
            let extent = SignalledExtent(SIGKILL, to: main, owner: getuid(), proc: proc)
            #expect(!extent.proceed(Budget(steps: 3), isForeign: nobody))
            var pieces = 0
            // Registered once all processes are known.
            while !extent.proceed(
                Budget(steps: 3), isForeign: { $0 == spared && extent.members.count == all.count })
            {
                pieces += 1
            }
            #expect(pieces > 10)
            for process in all where process != spared { #expect(eventually { isGone(process) }) }
            #expect(!isGone(spared))
        }

        @Test("a process with thousands of threads, each with a child, is walked completely")
        func threads() throws {
            let child = try Child(
                python: """
                    import threading
                    # More than are listed at once.
                    threading.stack_size(65536)
                    def run(i):
                        if i % 10 == 0 and os.fork() == 0:
                            while True: signal.pause()
                        gate.wait()
                        while True: time.sleep(1000)
                    gate = threading.Barrier(601)
                    for i in range(600): threading.Thread(target=run, args=(i,), daemon=True).start()
                    gate.wait()
                    say('on')
                    hold()
                    """)
            alive.children.append(child)
            _ = try child.line()
            let main = try proc.identity(of: child.pid)
            var walk = ExtentWalk(from: main)
            var pieces = 1
            while !walk.proceed(proc, Budget(steps: 7), isForeign: nobody) { pieces += 1 }
            #expect(walk.found.count == 61)
            #expect(pieces > 80)
            let extent = StoppedExtent(proc: proc, main: main, owner: getuid())
            #expect(complete(extent))
            #expect(stopped(walk.found) == 61)
            extent.release()
        }

        @Test("a signal in pieces reaches every process")
        func signal() throws {
            let (_, main) = try family()
            let all = members(main)
            let extent = SignalledExtent(SIGSTOP, to: main, owner: getuid(), proc: proc)
            var pieces = 1
            while !extent.proceed(Budget(steps: 3), isForeign: nobody) { pieces += 1 }
            #expect(pieces > 10)
            #expect(Set(extent.members) == Set(all))
            #expect(eventually { stopped(all) == all.count })
            #expect(Extent.signal(SIGCONT, to: main, owner: getuid(), proc: proc, isForeign: nobody) == [])
        }

        @Test(
            "the method of suspension is decided and saved before any process is stopped, in any number of pieces"
        )
        func preparation() throws {
            let (_, main) = try family()
            let all = members(main)
            Glibc.kill(all[3].pid, SIGSTOP)
            #expect(eventually { stopped(all) == 1 })
            let suspender = Suspender(
                proc: proc, hierarchy: nil, main: main, owner: getuid(), daemon: nil)
            var stoppedWhenTold: [Int] = []
            suspender.fellBack = {
                stoppedWhenTold.append(stopped(all))
                return nil
            }
            #expect(!suspender.prepare(within: Budget(steps: 3), isForeign: nobody))
            #expect(!suspender.isBySignal)
            #expect(suspender.stoppedByUs == [])
            #expect(eventually { suspender.stop(within: Budget(steps: 3), isForeign: nobody) == .complete })
            #expect(stoppedWhenTold == [1])
            #expect(suspender.isBySignal)
            #expect(suspender.standing == [all[3]])
            #expect(stopped(all) == all.count)
            while !suspender.release(within: Budget(steps: 3)) {}
            #expect(eventually { stopped(all) == 1 })
            // Undone before it was decided, it has had no effect.
            #expect(!suspender.prepare(within: Budget(steps: 3), isForeign: nobody))
            suspender.release()
            #expect(!suspender.isBySignal && !suspender.holdsAnybody)
        }

        @Test("a suspension prepared in pieces does not begin if it cannot be saved, and can begin later")
        func unrecorded() throws {
            let (_, main) = try family()
            let all = members(main)
            let suspender = Suspender(
                proc: proc, hierarchy: nil, main: main, owner: getuid(), daemon: nil)
            let failure = KernelFailure(operation: "write", subject: "holds/1", errno: ENOSPC)
            suspender.fellBack = { failure }
            var progress = Suspender.Progress.interrupted
            while progress == .interrupted {
                progress = suspender.stop(within: Budget(steps: 3), isForeign: nobody)
            }
            #expect(progress == .pending)
            #expect(suspender.unrecorded == failure && suspender.failures == [failure])
            #expect(!suspender.isBySignal && !suspender.holdsAnybody && suspender.standing == [])
            #expect(stopped(all) == 0)
            suspender.fellBack = { nil }
            #expect(eventually { suspender.stop(within: Budget(steps: 3), isForeign: nobody) == .complete })
            #expect(suspender.unrecorded == nil && suspender.isBySignal)
            #expect(stopped(all) == all.count)
            suspender.release()
        }

        @Test(
            "thousands of children of other users are reported as one failure",
            .enabled(if: Machine.isRoot, "needs root"))
        func failures() throws {
            let child = try Child(
                python: """
                    for i in range(8):
                        if os.fork() == 0:
                            os.setresuid(65534, 65534, 65534)
                            say(os.getpid())
                            while True: signal.pause()
                    while True: signal.pause()
                    """)
            for _ in 0..<8 { _ = try child.line() }
            let main = try proc.identity(of: child.pid)
            let first = members(main)[1]
            let extent = StoppedExtent(proc: proc, main: main, owner: 0)
            #expect(complete(extent))
            #expect(
                extent.failures == [
                    KernelFailure(
                        operation: "check before a signal that user 0 alone owns",
                        subject: "process \(first) and others",
                        errno: EPERM)
                ])
            extent.release()
            for process in members(main) { Glibc.kill(process.pid, SIGKILL) }
        }

        @Test("an abandoned plan of resources leaves the ledger unchanged; a write continues")
        func resources() throws {
            let (_, main) = try family()
            let all = members(main)
            var ledger = ResourceLedger(proc: proc, main: main, owner: getuid())
            let row = ResourceRow(oomScoreAdjust: 300)
            var copy = ledger
            #expect(copy.plan(row, within: Budget(steps: 3), isForeign: nobody) == nil)
            #expect(ledger.isEmpty)
            guard var changes = ledger.plan(row, isForeign: nobody) else {
                Issue.record("a plan without a bound was abandoned")
                return
            }
            var pieces = 1
            while !ledger.carryOut(&changes, within: Budget(steps: 5)) { pieces += 1 }
            #expect(pieces > 3)
            for process in all {
                #expect(try OOMScoreAdjustment.read(process.pid, proc: proc) >= 300)
            }
            #expect(ledger.figures.values.reduce(0, +) == all.count)
        }
    }
}
