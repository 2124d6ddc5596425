import Foundation
import Glibc
public import Linux

extension Cgroup {
    public var hasMemoryController: Bool { access("\(directory)/memory.max", W_OK) == 0 }
}

/// A memory cgroup of version 1 or 2 with a limit. Its processes end, and it is removed, when this object is released.
public final class MemoryLimit {
    /// The cgroup of version 2, which exists in both cases.
    public let own: TestCgroup
    /// The cgroup of version 1, if that has the memory controller.
    private let old: String?

    /// Whether a limit can be set: this needs root, and a memory controller of version 1 or 2.
    public static let isAvailable = getuid() == 0 && (try? MemoryLimit(bytes: 64 << 20)) != nil
    public static let whatIsMissing: String = "needs root and a memory controller"

    public init(bytes: Int) throws {
        own = try TestCgroup("test-memory")
        if own.cgroup.hasMemoryController {
            old = nil
            try Self.write("\(bytes)", to: "\(own.cgroup.directory)/memory.max")
            // The kernel has this file if it counts swap.
            try? Self.write("0", to: "\(own.cgroup.directory)/memory.swap.max")
        } else {
            let directory = "/sys/fs/cgroup/memory/\(own.cgroup.name)"
            guard mkdir(directory, 0o755) == 0 else { throw TestFailure("mkdir \(directory): \(errno)") }
            old = directory
            try Self.write("\(bytes)", to: "\(directory)/memory.limit_in_bytes")
            // The kernel has this file if it counts swap. The limit is that of memory and swap together.
            try? Self.write("\(bytes)", to: "\(directory)/memory.memsw.limit_in_bytes")
        }
    }

    deinit {
        try? own.kill()
        if let old { removeCgroup(old) }
    }

    public func take(_ pid: Int32) throws {
        try own.take(pid)
        if let old { try Self.write("\(pid)", to: "\(old)/cgroup.procs") }
    }

    public static func write(_ text: String, to path: String) throws {
        let file = open(path, O_WRONLY | O_CLOEXEC)
        guard file >= 0 else { throw TestFailure("open \(path): \(errno)") }
        defer { close(file) }
        guard Glibc.write(file, text, text.utf8.count) == text.utf8.count else {
            throw TestFailure("write \(path): \(errno)")
        }
    }
}

/// Removes a cgroup whose last process is about to leave it.
private func removeCgroup(_ directory: String) {
    let deadline = ContinuousClock.now + .seconds(300)
    while rmdir(directory) != 0, errno == EBUSY, ContinuousClock.now < deadline { sched_yield() }
}

/// A freezer of cgroup v1. It holds even processes that got SIGKILL.
public final class OldFreezer {
    private let directory = "/sys/fs/cgroup/freezer/test-\(UUID().uuidString)"

    /// Whether the machine has this freezer.
    public static let isAvailable =
        getuid() == 0 && access("/sys/fs/cgroup/freezer/cgroup.procs", W_OK) == 0
    public static let whatIsMissing: String = "needs root and the freezer of cgroup v1"

    public init(freezing pid: Int32) throws {
        guard mkdir(directory, 0o755) == 0 else { throw TestFailure("mkdir \(directory): \(errno)") }
        try MemoryLimit.write("\(pid)", to: "\(directory)/cgroup.procs")
        try MemoryLimit.write("FROZEN", to: "\(directory)/freezer.state")
        let state = "\(directory)/freezer.state"
        // The freezer sends no notification. A process that the other freezer holds may miss a request, so it is
        // repeated.
        let deadline = ContinuousClock.now + .seconds(300)
        while ContinuousClock.now < deadline {
            try MemoryLimit.write("THAWED", to: state)
            try MemoryLimit.write("FROZEN", to: state)
            for _ in 0..<1_000 { sched_yield() }
            if try String(contentsOfFile: state, encoding: .utf8) == "FROZEN\n" { return }
            sched_yield()
        }
        throw TestFailure("\(pid) is not frozen")
    }

    public func thaw() throws {
        try MemoryLimit.write("THAWED", to: "\(directory)/freezer.state")
    }

    deinit {
        try? thaw()
        removeCgroup(directory)
    }
}
