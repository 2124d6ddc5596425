import Glibc

/// Small files that are there whole or not at all, however their writer ends.
public enum WholeFile {
    /// Puts `text` at `path`: written beside it, then renamed over it (rename(2) is atomic).
    ///
    /// Not fsynced: it is to outlive its writer, not the machine.
    public static func write(_ text: String, to path: String) throws(KernelFailure) {
        let draft = path + ".new"
        let number = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard number >= 0 else { throw KernelFailure(operation: "open", subject: draft, errno: errno) }
        let file = Descriptor(owning: number)
        var text = text
        let failure: Int32 = text.withUTF8 { bytes in
            var rest = UnsafeRawBufferPointer(bytes)
            while !rest.isEmpty {
                let count = Glibc.write(file.rawValue, rest.baseAddress, rest.count)
                if count < 0 {
                    if errno == EINTR { continue }
                    return errno
                }
                rest = UnsafeRawBufferPointer(rebasing: rest[count...])
            }
            return 0
        }
        guard failure == 0 else {
            unlink(draft)
            throw KernelFailure(operation: "write", subject: draft, errno: failure)
        }
        guard rename(draft, path) == 0 else {
            throw KernelFailure(operation: "rename", subject: path, errno: errno)
        }
    }

    /// Removes a file; one that is not there is no failure.
    public static func remove(_ path: String) throws(KernelFailure) {
        guard unlink(path) == 0 || errno == ENOENT else {
            throw KernelFailure(operation: "unlink", subject: path, errno: errno)
        }
    }

    /// Makes a directory that only its owner may enter; one that is there already is no failure.
    public static func makeDirectory(_ path: String) throws(KernelFailure) {
        guard mkdir(path, 0o700) == 0 || errno == EEXIST else {
            throw KernelFailure(operation: "mkdir", subject: path, errno: errno)
        }
    }
}
