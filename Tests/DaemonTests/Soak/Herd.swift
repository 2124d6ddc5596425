import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport

/// Many real processes. Most have no children. Every tenth has children, which outlive it when it is killed. All
/// end when the herd is released, or when this process ends.
final class Herd {
    /// The processes to be registered. Their shell reaps them.
    let processes: [ProcessIdentity]
    private let shell: Child
    /// The processes read from this pipe, and end when it is closed.
    private let life: PipeEnds
    /// Each process and each child holds the write end, so the pipe hangs up when the last has ended.
    private let breath: PipeEnds

    static let isAvailable = ["sh", "cat", "setsid"].allSatisfy { Programs.inPath($0) != nil }

    private static let script = """
        exec 3<&0
        i=0
        while [ $i -lt "$1" ]; do
            i=$((i + 1))
            if [ $((i % 10)) = 0 ]; then
                sh -c 'cat <&3 >&4 & cat <&3 >&4 & cat <&3 >&4; wait' &
            else
                cat <&3 >&4 &
            fi
            echo "pid $!"
        done
        echo complete
        wait
        """

    init(_ count: Int) throws {
        life = try PipeEnds()
        breath = try PipeEnds()
        // They have a session of their own, by which all can be found in the end.
        shell = try Child(
            "setsid", ["sh", "-c", Self.script, "sh", String(count)],
            descriptors: [STDIN_FILENO: life.read, 4: breath.write])
        close(life.takeRead())
        close(breath.takeWrite())
        try shell.waitForLine(containing: "complete")
        let proc = Proc()
        processes = try shell.output.split(separator: "\n").compactMap { line in
            line.hasPrefix("pid ") ? Int32(line.dropFirst(4)) : nil
        }.map { try proc.identity(of: $0) }
    }

    deinit {
        let proc = Proc()
        for pid in (try? proc.processes()) ?? [] where (try? proc.stat(pid))?.session == shell.pid {
            kill(pid, SIGKILL)
        }
    }

    /// Lets the remaining processes end. A process that was left stopped cannot: returns false after five minutes.
    func disperse() -> Bool {
        close(life.takeWrite())
        var silence = pollfd(fd: breath.read, events: Int16(POLLIN), revents: 0)
        return poll(&silence, 1, 300_000) == 1
    }
}
