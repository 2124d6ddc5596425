import Glibc
import TestSupport
import Testing

@testable import Linux

extension SignalTests {
    @Suite("Extents of many processes and threads", .enabled(if: Machine.hasPython, "needs python3"))
    struct LargeExtentTests {
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

        @Test("a kill spares a process that has become an application since the stop, and continues it")
        func killSparing() throws {
            let (_, main) = try family()
            let all = members(main)
            let spared = all[5]
            let extent = StoppedExtent(proc: proc, main: main, owner: getuid())
            #expect(complete(extent))
            extent.kill { $0 == spared }
            #expect(extent.failures == [])
            for process in all where process != spared { #expect(eventually { isGone(process) }) }
            #expect(eventually { (try? proc.isStopped(spared)) == false })
            #expect(!isGone(spared))
        }

        @Test("the method of suspension is decided and saved before any process is stopped")
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
            #expect(eventually { suspender.stop(isForeign: nobody) == .complete })
            #expect(stoppedWhenTold == [1])
            #expect(suspender.isBySignal)
            #expect(suspender.standing == [all[3]])
            #expect(stopped(all) == all.count)
            suspender.release()
            #expect(eventually { stopped(all) == 1 })
            // What was prepared is recorded by the caller.
            suspender.prepare(isForeign: nobody)
            #expect(suspender.isBySignal && suspender.stoppedByUs == [])
            #expect(eventually { suspender.stop(isForeign: nobody) == .complete })
            #expect(stoppedWhenTold == [1])
            suspender.release()
            #expect(!suspender.isBySignal && !suspender.holdsAnybody)
        }

        @Test("a suspension does not begin if it cannot be saved, and can begin later")
        func unrecorded() throws {
            let (_, main) = try family()
            let all = members(main)
            let suspender = Suspender(
                proc: proc, hierarchy: nil, main: main, owner: getuid(), daemon: nil)
            let failure = KernelFailure(operation: "write", subject: "applications/1", errno: ENOSPC)
            suspender.fellBack = { failure }
            #expect(suspender.stop(isForeign: nobody) == .pending)
            #expect(suspender.unrecorded == failure && suspender.failures == [failure])
            #expect(!suspender.isBySignal && !suspender.holdsAnybody && suspender.standing == [])
            #expect(stopped(all) == 0)
            suspender.fellBack = { nil }
            #expect(eventually { suspender.stop(isForeign: nobody) == .complete })
            #expect(suspender.unrecorded == nil && suspender.isBySignal)
            #expect(stopped(all) == all.count)
            suspender.release()
        }
    }
}
