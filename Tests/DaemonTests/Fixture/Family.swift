import Glibc
import Linux
import TestSupport

/// A process with hundreds of children: more than the daemon stops, continues or sets resources for in one piece. All
/// end when this object is released.
final class Family {
    let main: Child
    /// The main process comes first.
    let all: [ProcessIdentity]
    private let proc = Proc()

    static let isAvailable = TestDaemon.isAvailable && access("/usr/bin/python3", X_OK) == 0
    static let whatIsMissing: String = TestDaemon.whatIsMissing + ", and python3"

    init(_ count: Int = 400) throws {
        main = try Child(
            "/usr/bin/python3",
            [
                "-c",
                """
                import os, signal
                for i in range(\(count)):
                    if os.fork() == 0:
                        while True: signal.pause()
                print('on', flush=True)
                while True: signal.pause()
                """,
            ])
        _ = try main.waitForLine(containing: "on")
        all = Extent.members(of: try proc.identity(of: main.pid), proc: proc) { _ in false }
    }

    deinit {
        // SIGKILL ends stopped processes, too.
        for process in all { signal(SIGKILL, to: process) }
    }

    var pid: Int32 { main.pid }

    /// The processes that live.
    var living: [ProcessIdentity] {
        all.filter { process in
            guard let stat = try? proc.stat(process.pid), stat.identity == process else { return false }
            return stat.state != .zombie && stat.state != .dead
        }
    }

    var stopped: Int { all.count { (try? proc.isStopped($0)) == true } }

    /// Polls, because there is no notification of changes in processes that are not children.
    func wait(_ what: String, until done: () throws -> Bool) throws {
        guard try eventually(done) else {
            throw TestFailure("\(what) did not come: \(living.count) of \(all.count) live, \(stopped) stop")
        }
    }

    /// How many processes have this `oom_score_adj`.
    func count(score: Int32) -> Int {
        living.count { (try? OOMScoreAdjustment.read($0.pid, proc: proc)) == score }
    }
}
