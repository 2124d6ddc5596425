import Glibc

/// Small files that are written atomically, no matter how their writer ends.
public enum WholeFile {
    /// The most bytes that are read of one file.
    public static let limit = 1 << 24

    /// Puts `text` at `path`: writes it beside the old file, then renames it over that (rename(2) is atomic).
    ///
    /// It is not synced with fsync(2), because it must outlive its writer, not the machine.
    public static func write(_ text: String, to path: String) throws(KernelFailure) {
        try write(Array(text.utf8), to: path)
    }

    /// The same for bytes.
    public static func write(_ bytes: [UInt8], to path: String) throws(KernelFailure) {
        try replace(path, draft: path + ".new") { file throws(KernelFailure) in
            try append(bytes, to: file, named: path)
        }
    }

    /// Puts the output of `fill` at `path`: it is first written beside the old file, as `draft`, and then
    /// renamed over it.
    static func replace(
        _ path: String, draft: String, _ fill: (borrowing Descriptor) throws(KernelFailure) -> Void
    ) throws(KernelFailure) {
        let file = try Descriptor.open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode: 0o600)
        do throws(KernelFailure) {
            try fill(file)
            guard rename(draft, path) == 0 else {
                throw KernelFailure(operation: "rename", subject: path, errno: errno)
            }
        } catch {
            unlink(draft)
            throw error
        }
    }

    /// Writes all of `bytes`.
    static func append(
        _ bytes: [UInt8], to file: borrowing Descriptor, named path: String
    ) throws(KernelFailure) {
        let number = file.rawValue
        let failure = bytes.withUnsafeBytes { bytes -> KernelFailure? in
            do throws(KernelFailure) {
                try append(bytes, to: number, named: path)
                return nil
            } catch {
                return error
            }
        }
        if let failure { throw failure }
    }

    /// The same for bytes in memory that the caller keeps.
    static func append(
        _ bytes: UnsafeRawBufferPointer, to file: Int32, named path: String
    ) throws(KernelFailure) {
        var rest = bytes
        while !rest.isEmpty {
            let count = Glibc.write(file, rest.baseAddress, rest.count)
            if count < 0 {
                if errno == EINTR { continue }
                throw KernelFailure(operation: "write", subject: path, errno: errno)
            }
            rest = UnsafeRawBufferPointer(rebasing: rest[count...])
        }
    }

    /// All bytes of a regular file, up to `limit`; anything else is refused, so that no caller waits for it.
    public static func read(_ path: String) throws(KernelFailure) -> [UInt8] {
        let file = try TextFile.openRegular(path)
        return try Files.bytes(in: file, named: path, limit: limit)
    }

    /// Removes a file; a missing file is not a failure.
    public static func remove(_ path: String) throws(KernelFailure) {
        guard unlink(path) == 0 || errno == ENOENT else {
            throw KernelFailure(operation: "unlink", subject: path, errno: errno)
        }
    }

    /// Creates a directory that only its owner may enter; an existing directory is not a failure.
    public static func makeDirectory(_ path: String) throws(KernelFailure) {
        guard mkdir(path, 0o700) == 0 || errno == EEXIST else {
            throw KernelFailure(operation: "mkdir", subject: path, errno: errno)
        }
    }
}
