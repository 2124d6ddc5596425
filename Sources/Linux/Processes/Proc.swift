import Glibc

/// The processes that proc(5) shows.
public struct Proc: Sendable {
    /// Where the file system is mounted, without a slash at its end.
    public let root: String

    /// Reads below `root`: another mount, or a made-up tree in tests.
    public init(root: String = "/proc") {
        self.root = root
    }

    /// The ids of all processes that the mount shows: one pass over its directory.
    public func processes() throws(KernelFailure) -> [Int32] {
        try Files.numbers(in: root)
    }

    /// Whether our process lives in the machine's first PID namespace, whose inode number is fixed:
    /// `PROC_PID_INIT_INO`, 4026531836 (include/linux/proc_ns.h). Kernel records hold process ids of that namespace.
    public var isInitialPIDNamespace: Bool {
        var information = Glibc.stat()
        guard fstatat(AT_FDCWD, "\(root)/self/ns/pid", &information, 0) == 0 else { return false }
        return information.st_ino == 4_026_531_836
    }

    /// Distinguishes this boot of the machine from any other: random(4), "boot_id".
    public func bootID() throws(KernelFailure) -> String {
        try TextFile.read("\(root)/sys/kernel/random/boot_id").filter { !$0.isNewline }
    }

    /// The start time and the id, which together identify the process.
    public func identity(of pid: Int32) throws(KernelFailure) -> ProcessIdentity {
        ProcessIdentity(pid: pid, startTime: try stat(pid).startTime)
    }

    func path(_ pid: Int32, _ name: String) -> String {
        "\(root)/\(pid)/\(name)"
    }

    /// The failure for a missing file of a process: `ESRCH` if the process is gone, `ENOENT` if the kernel has no such
    /// file.
    func failure(_ operation: String, _ pid: Int32, _ name: String, _ number: Int32) -> KernelFailure {
        let gone = number == ENOENT && !Files.exists("\(root)/\(pid)")
        return KernelFailure(
            operation: operation, subject: path(pid, name), errno: gone ? ESRCH : number)
    }

    /// Reads a file of the process once. Allocates nothing but what `parse` allocates.
    func readOnce<Value>(
        _ pid: Int32, _ name: String, _ parse: (inout Bytes) -> Value?
    ) throws(KernelFailure) -> Value {
        let result = withPath(pid, name) { path in Files.readOnce(path, parse) }
        switch result {
        case .failure(let number): throw failure("read", pid, name, number.value)
        case .success(.none):
            throw KernelFailure(operation: "parse", subject: path(pid, name), errno: EBADMSG)
        case .success(.some(let value)): return value
        }
    }

    func forEachLine(
        _ pid: Int32, _ name: String, _ body: (inout Bytes) -> Bool
    ) throws(KernelFailure) {
        do throws(KernelFailure) {
            try Files.forEachLine(of: path(pid, name), body)
        } catch {
            throw failure(error.operation, pid, name, error.errno)
        }
    }

    /// `root/pid/name` with its NUL, on the stack.
    func withPath<Value>(
        _ pid: Int32, _ name: String, _ body: (UnsafePointer<CChar>) -> Value
    ) -> Value {
        // Two slashes, the NUL, and eleven for the number.
        let capacity = root.utf8.count + name.utf8.count + 14
        return withUnsafeTemporaryAllocation(of: CChar.self, capacity: capacity) { buffer in
            var end = 0
            func put(_ byte: UInt8) {
                buffer.initializeElement(at: end, to: CChar(bitPattern: byte))
                end += 1
            }
            for byte in root.utf8 { put(byte) }
            put(UInt8(ascii: "/"))
            if pid < 0 { put(UInt8(ascii: "-")) }
            var divisor: UInt32 = 1
            let magnitude = pid.magnitude
            while magnitude / divisor >= 10 { divisor *= 10 }
            while divisor > 0 {
                put(UInt8(ascii: "0") + UInt8(magnitude / divisor % 10))
                divisor /= 10
            }
            put(UInt8(ascii: "/"))
            for byte in name.utf8 { put(byte) }
            put(0)
            guard let path = buffer.baseAddress else { preconditionFailure("a buffer without an address") }
            return body(path)
        }
    }
}

/// Identifies a process for as long as the machine runs: process ids are reused, but not with the same start time.
public struct ProcessIdentity: Hashable, Sendable, CustomStringConvertible {
    /// The process id in the PID namespace of the `Proc` that gave it.
    public let pid: Int32
    /// When it started, in clock ticks since boot: field 22 of `/proc/PID/stat` (proc(5)).
    public let startTime: UInt64

    /// An identity that was seen or recorded.
    public init(pid: Int32, startTime: UInt64) {
        self.pid = pid
        self.startTime = startTime
    }

    /// The two numbers, for example `12@3456`.
    public var description: String { "\(pid)@\(startTime)" }
}
