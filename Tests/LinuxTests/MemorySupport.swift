import Foundation
import Glibc
import TestSupport

@testable import Linux

extension Machine {
    /// Whether a memory limit can be set for a process: requires root and a memory controller of version 1 or 2.
    static let canLimitMemory = isRoot && (try? MemoryLimit(bytes: 64 << 20)) != nil
    /// Whether the unified hierarchy has the memory controller.
    static let hasUnifiedMemory =
        (try? TestCgroup("test-probe")).map { $0.cgroup.hasMemoryController } ?? false
    /// Whether the version 1 freezer is available; SIGKILL does not end processes that it has frozen.
    static let hasOldFreezer = isRoot && access("/sys/fs/cgroup/freezer/cgroup.procs", W_OK) == 0
    static let hasPressure = access("/proc/pressure/memory", R_OK | W_OK) == 0
    /// Whether calls of the allocator can be counted: requires root, uprobes and python3.
    static let canCountAllocations =
        isRoot && hasPython && access("/sys/bus/event_source/devices/uprobe/type", R_OK) == 0
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

/// Counts a thread's calls of the allocator by kernel uprobes on the C library's functions.
final class AllocationCounter {
    private let child: Child

    /// Counts calls of the calling thread.
    init() throws {
        let thread = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/thread-self")
        guard let number = thread.split(separator: "/").last else { throw Trouble("thread-self: \(thread)") }
        let places = try ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"].map {
            try Self.place(of: $0)
        }
        child = try Child(
            python: """
                import struct
                def event(path, offset):
                    kind = int(open("/sys/bus/event_source/devices/uprobe/type").read())
                    name = ctypes.create_string_buffer(path.encode())
                    # perf_event_attr: type, size, config, sample_period, sample_type, read_format, flags,
                    # wakeup_events and bp_type, config1, config2.
                    attr = struct.pack("=IIQQQQQIIQQ", kind, 72, 0, 0, 0, 0, 0, 0, 0, ctypes.addressof(name), offset)
                    libc = ctypes.CDLL(None, use_errno=True)
                    number = {"x86_64": 298, "aarch64": 241}[os.uname().machine]
                    found = libc.syscall(number, attr, \(number), -1, -1, ctypes.c_ulong(8))
                    if found < 0: say("failed", os.strerror(ctypes.get_errno())); sys.exit()
                    return found
                events = [event(path, offset) for path, offset in \(Self.python(places))]
                say("ready")
                for line in sys.stdin:
                    say(sum(struct.unpack("Q", os.read(event, 8))[0] for event in events))
                """)
        let answer = try child.line()
        guard answer == "ready" else { throw Trouble("uprobe: \(answer)") }
    }

    /// Calls so far.
    func count() throws -> Int32 {
        child.tell("count")
        return try child.numbers()[0]
    }

    private static func python(_ places: [(String, UInt)]) -> String {
        "[" + places.map { "(\"\($0)\", \($1))" }.joined(separator: ", ") + "]"
    }

    /// The file of a function, and the offset in it.
    private static func place(of function: String) throws -> (String, UInt) {
        guard let symbol = dlsym(nil, function) else { throw Trouble("no \(function)") }
        let address = UInt(bitPattern: symbol)
        var place: (String, UInt)?
        try Files.forEachLine(of: "/proc/self/maps") { line in
            let fields = line.text.split(separator: " ")
            let bounds = fields[0].split(separator: "-").compactMap { UInt($0, radix: 16) }
            guard bounds.count == 2, bounds[0] <= address, address < bounds[1], fields.count > 5,
                let offset = UInt(fields[2], radix: 16)
            else { return true }
            place = (String(fields[5]), address - bounds[0] + offset)
            return false
        }
        if let place { return place }
        throw Trouble("\(function) is in no mapping")
    }
}
