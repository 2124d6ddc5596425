import Glibc
import Linux

extension Proc {
    /// Whether the kernel does not let us inspect the process, and so its sockets (ptrace(2), "Ptrace access mode
    /// checking"): it is another user's, or not dumpable (prctl(2), `PR_SET_DUMPABLE`).
    func refusesInspection(of pid: Int32) -> Bool {
        do throws(KernelFailure) {
            _ = try formerExecutable(of: pid)
            return false
        } catch {
            return error.errno == EACCES || error.errno == EPERM
        }
    }

    /// Whether users may inspect their own processes as a debugger does: the sysctl `kernel.yama.ptrace_scope` is 0, or
    /// the kernel has none.
    var usersMayInspect: Bool {
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
    func appImage(of pid: Int32, scripts: [String] = []) -> String? {
        guard let program = try? formerExecutable(of: pid) else { return nil }
        let isImage = ([program] + scripts).contains { path in
            path.split(separator: "/").contains {
                $0.hasBytes(prefix: ".mount_") || $0.hasBytes(prefix: "appimage_extracted_")
            }
        }
        guard isImage, let text = try? TextFile.read("\(root)/\(pid)/environ") else { return nil }
        let name = "APPIMAGE="
        let value = text.split(separator: "\0").first { $0.hasBytes(prefix: name) }.map {
            String(Substring($0.utf8.dropFirst(name.utf8.count)))
        }
        return value.flatMap { $0.hasBytes(prefix: "/") ? $0 : nil }
    }
}
