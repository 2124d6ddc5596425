import Glibc

extension Proc {
    /// The name of the program that the process runs: the last component of `/proc/PID/exe` (proc_pid_exe(5)). Unlike
    /// the command line it is the kernel's, and reading it waits for nobody.
    public func program(of pid: Int32) throws(KernelFailure) -> String {
        let path = path(pid, "exe")
        let result: Result<String, ErrorNumber> = withUnsafeTemporaryAllocation(
            of: CChar.self, capacity: Int(PATH_MAX)
        ) { buffer in
            guard let base = buffer.baseAddress else { return .failure(ErrorNumber(value: ENOMEM)) }
            let count = readlink(path, base, buffer.count)
            guard count >= 0 else { return .failure(ErrorNumber(value: errno)) }
            let bytes = UnsafeRawBufferPointer(UnsafeBufferPointer(rebasing: buffer[..<count]))
            let name = bytes.split(separator: UInt8(ascii: "/")).last.map { Array($0) } ?? []
            return .success(String(decoding: name, as: UTF8.self))
        }
        switch result {
        case .success(let name):
            // Its file was removed or replaced meanwhile.
            let deleted = " (deleted)"
            return name.hasSuffix(deleted) ? String(name.dropLast(deleted.count)) : name
        case .failure(let number): throw failure("readlink", pid, "exe", number.value)
        }
    }
}
