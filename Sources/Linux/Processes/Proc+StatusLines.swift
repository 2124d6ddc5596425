import Glibc

extension Proc {
    /// Calls `body` with the lines of `/proc/PID/status`, as `forEachLine` does.
    ///
    /// Throws `EFBIG` if the file is long, or was long a short while ago, for this process or another one of its user.
    ///
    /// - Parameter evenIfLong: it is read all the same.
    func forEachStatusLine(
        _ pid: Int32, evenIfLong: Bool = false, _ body: (inout Bytes) -> Bool
    ) throws(KernelFailure) {
        if evenIfLong {
            try forEachLine(pid, "status", body)
            return
        }
        guard !longFiles.contains({ subject(pid) }) else { throw tooLong(pid) }
        guard try forEachLine(pid, "status", body) > LongFiles.most else { return }
        longFiles.insert(subject(pid))
        throw tooLong(pid)
    }

    private func subject(_ pid: Int32) -> LongFiles.Subject {
        guard let owner = directoryOwner(of: pid), owner != 0 else { return .process(pid) }
        return .user(owner)
    }

    private func tooLong(_ pid: Int32) -> KernelFailure {
        KernelFailure(operation: "read", subject: path(pid, "status"), errno: EFBIG)
    }
}
