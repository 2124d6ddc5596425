import Glibc
import Linux

/// A file that belongs to the user.
enum UserFile {
    /// The bytes of a file; nil: there is no such file. It is a failure if the file cannot be read, or if only its
    /// beginning would be.
    static func bytes(of path: String) throws -> [UInt8]? {
        let bytes: [UInt8]
        do throws(KernelFailure) {
            bytes = try WholeFile.read(path)
        } catch {
            if error.isNoSuchFile { return nil }
            // The error for a directory, a FIFO or a device.
            let isOther = error.errno == EINVAL
            let reason = isOther ? "it is not a regular file" : String(cString: strerror(error.errno))
            throw Failure("\(path) cannot be read: \(reason)")
        }
        guard bytes.count <= TextFile.limit else {
            throw Failure("\(path) cannot be read: it is longer than \(TextFile.limit >> 20) MiB")
        }
        return bytes
    }

    /// The text of a file; empty if there is none.
    static func text(of path: String) throws -> String {
        String(decoding: try bytes(of: path) ?? [], as: UTF8.self)
    }

    /// Replaces the file completely or not at all, and creates missing directories. If the path is a symbolic link, its
    /// target is replaced and the link stays.
    static func write(_ text: String, to path: String) throws {
        let target = realpath(path, nil).map { pointer in
            defer { free(pointer) }
            return String(cString: pointer)
        }
        let path = target ?? path
        let directory = path.split(separator: "/").dropLast().reduce(into: "") { whole, part in
            whole += "/" + part
            mkdir(whole, 0o755)
        }
        let new = directory + "/.session.conf.\(getpid())"
        let number = open(new, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o644)
        guard number >= 0 else { throw Failure("\(new) cannot be made: \(String(cString: strerror(errno)))") }
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(number, $0.baseAddress, $0.count) }
            guard count > 0 else { break }
            rest = rest.dropFirst(count)
        }
        let isWritten = rest.isEmpty && fsync(number) == 0
        close(number)
        guard isWritten, rename(new, path) == 0 else {
            let failure = Failure("\(path) cannot be written: \(String(cString: strerror(errno)))")
            unlink(new)
            throw failure
        }
    }
}
