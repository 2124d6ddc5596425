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
