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

    /// Whether the kernel does not let us inspect the process, and so its sockets (ptrace(2), "Ptrace access mode
    /// checking"): it is another user's, or not dumpable (prctl(2), `PR_SET_DUMPABLE`).
    public func refusesInspection(of pid: Int32) -> Bool {
        do throws(KernelFailure) {
            _ = try target(ofExecutable: pid)
            return false
        } catch {
            return error.errno == EACCES || error.errno == EPERM
        }
    }

    /// Whether users may inspect their own processes as a debugger does: the sysctl `kernel.yama.ptrace_scope` is 0, or
    /// the kernel has none.
    public var usersMayInspect: Bool {
        do throws(KernelFailure) {
            return try TextFile.read("\(root)/sys/kernel/yama/ptrace_scope").hasBytes(prefix: "0")
        } catch {
            return error.isNoSuchFile
        }
    }

    /// The AppImage from which the process was started; nil if it was not. It is `APPIMAGE` in the environment of
    /// a process whose program is on an AppImage's mount: each start mounts the image at another path.
    ///
    /// The kernel reads the environment from the process's own memory.
    ///
    /// - Parameter scripts: paths of which one may be the script that the process runs, if its program is an interpreter:
    ///   a script on the mount counts like a program there.
    public func appImage(of pid: Int32, scripts: [String] = []) -> String? {
        guard let program = try? target(ofExecutable: pid) else { return nil }
        let isImage = ([program] + scripts).contains { path in
            path.split(separator: "/").contains {
                $0.hasBytes(prefix: ".mount_") || $0.hasBytes(prefix: "appimage_extracted_")
            }
        }
        guard isImage, let text = try? TextFile.read(path(pid, "environ")) else { return nil }
        let name = "APPIMAGE="
        let value = text.split(separator: "\0").first { $0.hasBytes(prefix: name) }.map {
            String(Substring($0.utf8.dropFirst(name.utf8.count)))
        }
        return value.flatMap { $0.hasBytes(prefix: "/") ? $0 : nil }
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

/// Programs that run other programs, so their names do not identify an application.
public enum Interpreters {
    /// The names, without the version that may follow.
    public static let names: Set<String> = [
        "bash", "dash", "gjs", "java", "mono", "node", "perl", "python", "ruby", "sh",
    ]
}
