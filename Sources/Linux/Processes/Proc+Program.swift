import Glibc

extension Proc {
    /// The name of the program that the process runs: the last component of `/proc/PID/exe` (proc_pid_exe(5)). Unlike
    /// the command line it comes from the kernel, and reading it never waits for another process.
    public func program(of pid: Int32) throws(KernelFailure) -> String {
        try formerExecutable(of: pid).split(separator: "/").last.map(String.init) ?? ""
    }

    /// The file of the program; if it was removed or replaced meanwhile, the path that it had.
    public func formerExecutable(of pid: Int32) throws(KernelFailure) -> String {
        let path = try target(ofExecutable: pid)
        return path.hasSuffix(Self.deleted) ? String(path.dropLast(Self.deleted.count)) : path
    }

    private static let deleted = " (deleted)"

    /// Whether the file of the program was removed or replaced.
    public func isReplaced(_ pid: Int32) throws(KernelFailure) -> Bool {
        try target(ofExecutable: pid).hasSuffix(Self.deleted)
    }

    private func target(ofExecutable pid: Int32) throws(KernelFailure) -> String {
        let path = path(pid, "exe")
        let result: Result<String, ErrorNumber> = withUnsafeTemporaryAllocation(
            of: CChar.self, capacity: Int(PATH_MAX)
        ) { buffer in
            guard let base = buffer.baseAddress else { return .failure(ErrorNumber(value: ENOMEM)) }
            let count = readlink(path, base, buffer.count)
            guard count >= 0 else { return .failure(ErrorNumber(value: errno)) }
            let bytes = UnsafeRawBufferPointer(UnsafeBufferPointer(rebasing: buffer[..<count]))
            return .success(String(decoding: bytes, as: UTF8.self))
        }
        switch result {
        case .success(let target): return target
        case .failure(let number): throw failure("readlink", pid, "exe", number.value)
        }
    }
}

/// What a program was started with. The kernel reads it from the process's own memory, which may take a while.
extension Proc {
    /// The command line of a process, as it may be shown: its words, at most 80 bytes; its name if it has none.
    public func commandLine(of pid: Int32) -> String {
        let line = (try? TextFile.read(path(pid, "cmdline"))) ?? ""
        let words = line.split(separator: "\0").joined(separator: " ")
        if words.isEmpty { return (try? stat(pid))?.comm ?? "" }
        return words.utf8.count <= 80 ? words : String(decoding: words.utf8.prefix(77), as: UTF8.self) + "..."
    }

    /// The name by which a person knows what a process runs: its program's, or that of the script that an interpreter
    /// runs. At most 64 bytes, without control characters; empty if the process is gone.
    public func name(of pid: Int32) -> String {
        var name = (try? stat(pid))?.comm ?? ""
        if name.utf8.count >= 15, let program = try? program(of: pid), program.hasPrefix(name) {
            name = program
        }
        let interpreter = name.utf8.prefix { !"0123456789.".utf8.contains($0) }
        if Self.interpreters.contains(String(interpreter) ?? ""),
            let line = try? TextFile.read(path(pid, "cmdline")),
            let script = line.split(separator: "\0").dropFirst().first, !script.hasPrefix("-"),
            let last = script.split(separator: "/").last
        {
            name = String(last)
        }
        let scalars = name.unicodeScalars.filter { $0.properties.generalCategory != .control }
        return String(decoding: String(String.UnicodeScalarView(scalars)).utf8.prefix(64), as: UTF8.self)
    }

    private static let interpreters: Set<String> = [
        "bash", "dash", "gjs", "lua", "node", "perl", "python", "ruby", "sh",
    ]

    /// The process that must keep telling a service manager that it is alive, as `WatchdogSec=` says, according to the
    /// environment of a process: itself, or one above it (sd_watchdog_enabled(3)); nil: there is none.
    public func watchdogProcess(of pid: Int32) -> Int32? {
        let environment = environment(of: pid)
        guard let span = environment["WATCHDOG_USEC"].flatMap({ UInt64($0) }), span > 0 else { return nil }
        return environment["WATCHDOG_PID"].map { Int32($0) } ?? pid
    }

    /// Empty if it cannot be read.
    private func environment(of pid: Int32) -> [String: String] {
        let text = (try? TextFile.read(path(pid, "environ"))) ?? ""
        let pairs = text.split(separator: "\0").compactMap { line in
            line.utf8.firstIndex(of: UInt8(ascii: "=")).map {
                (String(line[..<$0]), String(line[line.utf8.index(after: $0)...]))
            }
        }
        return Dictionary(pairs) { first, _ in first }
    }
}
