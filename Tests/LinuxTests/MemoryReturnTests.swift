import Foundation
import Glibc
import TestSupport
import Testing

@testable import Linux

@Suite("Getting memory back")
struct MemoryReturnTests {
    private let proc = Proc()

    @Test(
        "memory of a killed process that cannot die yet is released at once",
        .enabled(if: Machine.hasOldFreezer, "needs root and the freezer of version 1"),
        .enabled(if: Machine.hasPython, "needs python3"),
        .enabled(if: Machine.isLinux(5, 15), "process_mrelease needs Linux 5.15"))
    func release() throws {
        let child = try holder(100 << 20)
        let pidfd = try PidFD(pid: child.pid)
        let before = try proc.memory(of: child.pid)
        #expect(before.anonymous >= 100 << 20)
        #expect(failure { try pidfd.releaseMemory() }?.errno == EINVAL)
        let freezer = try OldFreezer(freezing: child.pid)
        try pidfd.send(SIGKILL)
        #expect(pidfd.hasExited == false)
        try pidfd.releaseMemory()
        #expect(pidfd.hasExited == false)
        #expect(try proc.memory(of: child.pid).anonymous < 4 << 20)
        try freezer.thaw()
        try child.waitUntilZombie()
        #expect(failure { try pidfd.releaseMemory() }?.isNoSuchProcess == true)
        try child.reap()
        #expect(failure { try pidfd.releaseMemory() }?.isNoSuchProcess == true)
    }

    @Test(
        "right after SIGKILL the memory is released, or the process has already ended",
        .enabled(if: Machine.hasPython, "needs python3"),
        .enabled(if: Machine.isLinux(5, 15), "process_mrelease needs Linux 5.15"))
    func releaseInRace() throws {
        let child = try holder(100 << 20)
        let pidfd = try PidFD(pid: child.pid)
        try pidfd.send(SIGKILL)
        let number = failure { try pidfd.releaseMemory() }?.errno
        #expect([nil, ESRCH, EAGAIN, EINTR].contains(number))
        #expect(try child.reap() & 0x7F == SIGKILL)
    }

    @Test(
        "page-out covers all private anonymous memory, past locked ranges and past 1,024 ranges",
        .enabled(if: Machine.hasPython && Machine.isRoot, "needs root and python3"))
    func pageOut() throws {
        let child = try Child(
            python: """
                import mmap
                kinds = [mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE]
                # Of different rights: else the kernel makes one range of neighbours.
                held = [mmap.mmap(-1, 65536, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=kinds[i % 2])
                        for i in range(1500)]
                for one in held[1::2]: one.write(b"x" * 65536)
                locked = ctypes.c_char.from_buffer(held[701])
                libc = ctypes.CDLL(None, use_errno=True)
                assert libc.mlock(ctypes.c_void_p(ctypes.addressof(locked)), 65536) == 0
                say("held")
                hold()
                """)
        _ = try child.line()
        let identity = try proc.identity(of: child.pid)
        let outcome = try PageOut.perform(on: identity, owner: geteuid())
        #expect(outcome.refused == 65536)
        #expect(outcome.advised >= 1499 * 65536)
        #expect(outcome.before.anonymous >= 750 * 65536)
        if try MemoryInfo().read().swapFree > 128 << 20 {
            #expect(outcome.released > 0)
            #expect(outcome.after.swap > outcome.before.swap)
        }
        #expect(failure { _ = try PageOut.perform(on: identity, owner: 12_345) }?.errno == EPERM)
        let other = ProcessIdentity(pid: child.pid, startTime: identity.startTime + 1)
        #expect(failure { _ = try PageOut.perform(on: other, owner: geteuid()) }?.isNoSuchProcess == true)
    }

    @Test(
        "page-out of files drops only pages that no other process maps, and no anonymous memory",
        .enabled(if: Machine.hasPython && Machine.isRoot, "needs root and python3"))
    func pageOutFiles() throws {
        let tree = try MadeUpTree(["mark": ""], isOnDisk: true)
        func holder(_ name: String, _ bytes: Int) throws -> Child {
            let child = try Child(
                python: """
                    import mmap
                    file = os.open("\(tree.root)/\(name)", os.O_RDWR | os.O_CREAT)
                    os.ftruncate(file, 0)
                    os.ftruncate(file, \(bytes))
                    held = mmap.mmap(file, \(bytes), flags=mmap.MAP_SHARED)
                    held.write(b"x" * \(bytes))
                    own = bytearray(b"x" * (8 << 20))
                    os.fsync(file)
                    say("held")
                    if sys.stdin.readline(): say(str(sum(held[::4096])))
                    hold()
                    """)
            _ = try child.line()
            return child
        }
        let alone = try holder("alone", 32 << 20)
        let before = try proc.memory(of: alone.pid)
        #expect(before.files >= 32 << 20)
        let outcome = try PageOut.perform(on: proc.identity(of: alone.pid), owner: geteuid(), .files)
        #expect(outcome.released >= 24 << 20 && outcome.after.files < 16 << 20)
        #expect(outcome.after.anonymous >= 8 << 20)
        // Reading brings all of it back.
        alone.tell("sum")
        #expect(try alone.line() == "\(0x78 * (32 << 8))")
        var calls = 0
        let part = try PageOut.perform(on: proc.identity(of: alone.pid), owner: geteuid(), .files) {
            calls += 1
            return calls <= 2
        }
        #expect(calls == 3 && part.advised <= 16 << 20)

        let shared = try holder("shared", 16 << 20)
        let other = try Child(
            python: """
                import mmap
                file = os.open("\(tree.root)/shared", os.O_RDONLY)
                held = mmap.mmap(file, 16 << 20, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
                sum(held[::4096])
                say("held")
                hold()
                """)
        _ = try other.line()
        _ = try PageOut.perform(on: proc.identity(of: shared.pid), owner: geteuid(), .files)
        #expect(try proc.memory(of: other.pid).files >= 16 << 20)
    }

    @Test(
        "the ranges that are worth a page-out are selected",
        arguments: [
            ("55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0    [heap]", 0x21000),
            ("7f0000000000-7f0000100000 r--p 00000000 00:00 0 ", 0x100000),
            ("7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0    [stack]", 0x21000),
            ("7f0000000000-7f0000100000 rw-p 00000000 00:00 0    [anon:arena]", 0x100000),
            ("7f0000000000-7f0000001000 rw-p 00000000 00:00 0 ", 0),
            ("7f0000000000-7f0000100000 ---p 00000000 00:00 0 ", 0),
            ("7f0000000000-7f0000100000 rw-s 00000000 00:01 7    /dev/zero (deleted)", 0x100000),
            ("7f0000000000-7f0000100000 rw-p 00001000 fe:00 4711    /usr/lib/libc.so.6", 0x100000),
            ("7f0000000000-7f0000001000 r-xp 00001000 fe:00 4711    /usr/lib/libc.so.6", 0),
            ("7f0000000000-7f0000100000 ---p 00001000 fe:00 4711    /usr/lib/libc.so.6", 0),
            ("7ffe00000000-7ffe00021000 r--p 00000000 00:00 0    [vvar]", 0),
            ("7f0000100000-7f0000000000 rw-p 00000000 00:00 0 ", 0),
            ("7f0000000000-7f0000", 0),
        ])
    func ranges(line: String, length: Int) {
        func worthwhile(_ extent: PageOut.Extent) -> Int {
            var line = line
            let range = line.withUTF8 {
                PageOut.Mapping(parsing: UnsafeRawBufferPointer($0))?.worthwhileRange(extent)
            }
            return range?.iov_len ?? 0
        }
        #expect(worthwhile(.everything) == length)
        #expect(worthwhile(.files) == (line.contains("/") ? length : 0))
    }

    @Test(
        "reclaim of files requests no more than is not mapped, and nothing if more than a quarter is mapped",
        arguments: [
            ("inactive_file 4096\nactive_file 8192\n", "12288 swappiness=0"),
            ("file_mapped 3072\ninactive_file 4096\nactive_file 8192\n", "9216 swappiness=0"),
            ("file_mapped 3073\ninactive_file 4096\nactive_file 8192\n", ""),
            ("file_mapped 20480\ninactive_file 4096\nactive_file 8192\n", ""),
            ("inactive_file 0\nactive_file 0\n", ""),
        ])
    func reclaimFiles(statistics: String, request: String) throws {
        let tree = try MadeUpTree([
            "a/memory.reclaim": "", "a/memory.current": "9999\n", "a/memory.stat": "anon 5\n" + statistics,
        ])
        #expect(try place("a", tree).reclaimUnmappedFiles() == 0)
        #expect(try String(contentsOfFile: tree.root + "/a/memory.reclaim", encoding: .utf8) == request)
        #expect(failure { _ = try place("c", tree).reclaimUnmappedFiles() }?.isNoSuchFile == true)
    }

    @Test(
        "what a process in another cgroup has mapped stays, though it belongs to the reclaimed cgroup",
        .enabled(if: Machine.hasUnifiedMemory, "the memory controller is not in the unified hierarchy"),
        .enabled(if: Machine.hasPython, "needs python3"))
    func realReclaimOfShared() throws {
        let (suspended, front) = (try MemoryLimit(bytes: 128 << 20), try MemoryLimit(bytes: 128 << 20))
        let tree = try MadeUpTree(["mark": ""], isOnDisk: true)
        func mapper(in limit: MemoryLimit) throws -> Child {
            let child = try Child(
                python: """
                    import mmap
                    sys.stdin.readline()
                    file = os.open("\(tree.root)/shared", os.O_RDWR | os.O_CREAT)
                    if os.fstat(file).st_size == 0: os.write(file, b"x" * (32 << 20)); os.fsync(file)
                    held = mmap.mmap(file, 32 << 20, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
                    sum(held[::4096])
                    say("mapped")
                    hold()
                    """)
            try limit.take(child.pid)
            child.tell("go")
            _ = try child.line()
            return child
        }
        let owner = try mapper(in: suspended)
        let other = try mapper(in: front)
        _ = try PageOut.perform(on: proc.identity(of: owner.pid), owner: geteuid(), .files)
        _ = try suspended.own.cgroup.reclaimUnmappedFiles()
        #expect(try proc.memory(of: other.pid).files >= 32 << 20)
    }

    @Test("a limit of processor time is lifted where there is one")
    func cpuLimit() throws {
        let tree = try MadeUpTree(["a/cpu.max": "5000 100000\n", "b/cpu.max": "max 100000\n", "c/x": ""])
        for name in ["a", "b", "c"] { try place(name, tree).liftCPULimit() }
        // The kernel takes what is written as the whole value; a made-up file keeps its rest.
        #expect(try String(contentsOfFile: tree.root + "/a/cpu.max", encoding: .utf8).hasPrefix("max"))
        #expect(try String(contentsOfFile: tree.root + "/b/cpu.max", encoding: .utf8) == "max 100000\n")
    }

    /// A process that holds so much anonymous memory.
    private func holder(_ bytes: Int) throws -> Child {
        let child = try Child(
            python: """
                held = bytearray(b"x" * \(bytes))
                say("held")
                hold()
                """)
        _ = try child.line()
        return child
    }
}
