import Foundation
import Glibc
import TestSupport

@testable import Linux

extension Machine {
    /// Whether a memory limit can be set for a process: requires root and a memory controller of version 1 or 2.
    static let canLimitMemory = isRoot && (try? MemoryLimit(bytes: 64 << 20)) != nil
    /// Whether the version 1 freezer is available; SIGKILL does not end processes that it has frozen.
    static let hasOldFreezer = isRoot && access("/sys/fs/cgroup/freezer/cgroup.procs", W_OK) == 0
    static let hasPressure = access("/proc/pressure/memory", R_OK | W_OK) == 0
}

/// Stalls for lack of memory after `begin`: repeatedly reads a file that is larger than its limit.
final class Staller {
    let limit: MemoryLimit
    let child: Child
    private let tree: MadeUpTree

    init() throws {
        tree = try MadeUpTree(["mark": ""], isOnDisk: true)
        limit = try MemoryLimit(bytes: 16 << 20)
        child = try Child(
            python: """
                path = "\(tree.root)/large"
                file = os.open(path, os.O_RDWR | os.O_CREAT)
                for _ in range(64): os.write(file, b"x" * (1 << 20))
                # Else its pages are charged to whoever wrote them.
                os.fsync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                say("ready")
                sys.stdin.readline()
                # Not sequential: what the kernel reads ahead would not be missed.
                while True:
                    for block in range(0, 64 << 20, 1 << 18): os.pread(file, 4096, block)
                    for block in range(0, 64 << 20, 1 << 20): os.pread(file, 1 << 20, block)
                """)
        _ = try child.line()
        try limit.take(child.pid)
    }

    func begin() {
        child.tell("go")
    }
}

/// Polls for POLLPRI and returns what arrived, or 0 after five minutes: a bound for a broken test.
func awaitPriority(_ descriptor: Int32) -> Int32 {
    var look = pollfd(fd: descriptor, events: Int16(POLLPRI), revents: 0)
    while true {
        let result = poll(&look, 1, 300_000)
        if result < 0, errno == EINTR { continue }
        return Int32(look.revents)
    }
}
