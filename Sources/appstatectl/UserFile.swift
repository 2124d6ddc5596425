import Glibc
import Linux

/// A file that belongs to the user.
enum UserFile {
    /// A path that starts at the working directory unless it is absolute.
    static func absolute(_ path: String) throws -> String {
        if path.hasPrefix("/") { return path }
        guard let directory = getcwd(nil, 0) else {
            throw Failure("the working directory is not known: \(String(cString: strerror(errno)))")
        }
        defer { free(directory) }
        let text = String(cString: directory)
        return text == "/" ? "/\(path)" : "\(text)/\(path)"
    }

    /// The same for a file that must exist.
    static func existing(_ name: String) throws -> String {
        let path = try absolute(name)
        guard access(path, F_OK) == 0 else { throw Failure("\(name): \(String(cString: strerror(errno)))") }
        return path
    }

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

    /// The text of a file; empty if there is none. Text that is not UTF-8 could not be written back as it is.
    static func text(of path: String) throws -> String {
        let bytes = try bytes(of: path) ?? []
        if let text = String(validating: bytes, as: UTF8.self) { return text }
        let lines = bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
        let line = lines.firstIndex { String(validating: $0, as: UTF8.self) == nil } ?? 0
        throw Failure("\(path) cannot be changed: line \(line + 1) is not UTF-8")
    }

    /// Replaces the file atomically, and creates missing directories. If the path is a symbolic link, its
    /// target is replaced, and the link stays. The file keeps its mode.
    static func write(_ text: String, to path: String) throws {
        let path = path.hasSuffix("/") ? path : resolved(path) ?? path
        var status = stat()
        let exists = lstat(path, &status) == 0
        let isDirectory = path.hasSuffix("/") || exists && status.st_mode & S_IFMT == S_IFDIR
        guard !isDirectory, !exists || status.st_mode & S_IFMT == S_IFREG else {
            let what = isDirectory ? "a directory" : "not a regular file"
            throw Failure("\(path) cannot be written: it is \(what)")
        }
        let mode = exists ? status.st_mode & 0o777 : nil
        var directory = ""
        for part in path.split(separator: "/").dropLast() {
            directory += "/" + part
            guard mkdir(directory, 0o755) != 0, errno != EEXIST else { continue }
            let reason = String(cString: strerror(errno))
            // A file system that may not be changed may not say that there is one.
            if access(directory, F_OK) != 0 { throw Failure("\(directory) cannot be created: \(reason)") }
        }
        let new = directory + "/.appstatectl.\(getpid())"
        // Until the file has its final mode, nobody else can open it.
        let number = open(new, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode == nil ? 0o644 : 0o600)
        guard number >= 0 else {
            throw Failure("no file can be created in \(directory): \(String(cString: strerror(errno)))")
        }
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(number, $0.baseAddress, $0.count) }
            guard count > 0 else { break }
            rest = rest.dropFirst(count)
        }
        let hasMode = mode.map { fchmod(number, $0) == 0 } ?? true
        let isWritten = hasMode && rest.isEmpty && fsync(number) == 0
        close(number)
        guard isWritten, rename(new, path) == 0 else {
            let failure = Failure("\(path) cannot be written: \(String(cString: strerror(errno)))")
            unlink(new)
            throw failure
        }
    }

    /// The file that a path leads to; nil: there is none.
    static func resolved(_ path: String) -> String? {
        guard let whole = realpath(path, nil) else { return nil }
        defer { free(whole) }
        return String(cString: whole)
    }
}
