import Glibc

extension Proc {
    /// The name of the program that the process runs: the last component of `/proc/PID/exe` (proc_pid_exe(5)). Unlike
    /// the command line it comes from the kernel, and reading it never waits for another process.
    public func program(of pid: Int32) throws(KernelFailure) -> String {
        let path = try target(ofExecutable: pid)
        let name = path.split(separator: "/").last.map(String.init) ?? ""
        // The file was removed or replaced meanwhile.
        return name.hasSuffix(Self.deleted) ? String(name.dropLast(Self.deleted.count)) : name
    }

    /// The file of the program that the process runs. `ENOENT`: it was removed or replaced meanwhile.
    func executable(of pid: Int32) throws(KernelFailure) -> String {
        let path = try target(ofExecutable: pid)
        guard !path.hasSuffix(Self.deleted) else {
            throw KernelFailure(operation: "find", subject: path, errno: ENOENT)
        }
        return path
    }

    /// The same; if the file was removed or replaced meanwhile, the path that it had.
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
