import CLinux
import Glibc

/// Reads and writes small text files of the kernel.
enum Files {
    /// Reads the beginning of a file in one read(2) into a buffer on the stack.
    ///
    /// `body` gets up to 1,024 bytes: the most that `withUnsafeTemporaryAllocation` takes from the stack.
    static func readOnce<Value>(
        _ path: UnsafePointer<CChar>, _ body: (inout Bytes) -> Value
    ) -> Result<Value, ErrorNumber> {
        let file = open(path, O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return .failure(ErrorNumber(value: errno)) }
        defer { _ = close(file) }
        return withUnsafeTemporaryAllocation(byteCount: 1024, alignment: 8) { buffer in
            let count = read(file, buffer.baseAddress, buffer.count)
            guard count >= 0 else { return .failure(ErrorNumber(value: errno)) }
            var text = Bytes(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
            return .success(body(&text))
        }
    }

    /// Calls `body` with each line, without its end, until it returns false. If a line is longer than 8,192 bytes,
    /// `body` gets the beginning (the `Groups:` of a process may be longer, a path may not).
    static func forEachLine(
        of path: String, _ body: (inout Bytes) -> Bool
    ) throws(KernelFailure) {
        let file = try Descriptor.open(path)
        try forEachLine(in: file, named: path, body)
    }

    static func forEachLine(
        in file: borrowing Descriptor, named path: String, _ body: (inout Bytes) -> Bool
    ) throws(KernelFailure) {
        let number = file.rawValue
        let failure: Int32 = withUnsafeTemporaryAllocation(byteCount: 8192, alignment: 8) { buffer in
            guard let base = buffer.baseAddress else { return ENOMEM }
            func take(_ range: Range<Int>) -> Bool {
                var line = Bytes(UnsafeRawBufferPointer(rebasing: buffer[range]))
                return body(&line)
            }
            var filled = 0
            var cut = false
            while true {
                if filled == buffer.count {
                    if !cut, !take(0..<filled) { return 0 }
                    cut = true
                    filled = 0
                }
                let count = read(number, base + filled, buffer.count - filled)
                if count < 0 {
                    if errno == EINTR { continue }
                    return errno
                }
                if count == 0 {
                    if filled > 0, !cut { _ = take(0..<filled) }
                    return 0
                }
                filled += count
                var start = 0
                while let end = buffer[start..<filled].firstIndex(of: UInt8(ascii: "\n")) {
                    if !cut, !take(start..<end) { return 0 }
                    cut = false
                    start = end + 1
                }
                if start > 0 {
                    memmove(base, base + start, filled - start)
                    filled -= start
                }
            }
        }
        guard failure == 0 else { throw KernelFailure(operation: "read", subject: path, errno: failure) }
    }

    /// The whole of a small file as text, at most `limit` bytes.
    static func text(
        in file: borrowing Descriptor, named path: String, limit: Int
    ) throws(KernelFailure) -> String {
        String(decoding: try bytes(in: file, named: path, limit: limit), as: UTF8.self)
    }

    /// The whole of a small file, at most `limit` bytes.
    static func bytes(
        in file: borrowing Descriptor, named path: String, limit: Int
    ) throws(KernelFailure) -> [UInt8] {
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 4096)
        while bytes.count < limit {
            let count = read(file.rawValue, &chunk, chunk.count)
            if count < 0 {
                if errno == EINTR { continue }
                throw KernelFailure(operation: "read", subject: path, errno: errno)
            }
            if count == 0 { break }
            bytes += chunk[..<count]
        }
        return bytes.count > limit ? Array(bytes.prefix(limit)) : bytes
    }

    /// The entries of a directory whose names are numbers, in the order that the kernel gives, at most `limit`.
    static func numbers(in path: String, atMost limit: Int = .max) throws(KernelFailure) -> [Int32] {
        var found: [Int32] = []
        try forEachEntry(of: path) { name, _ in
            if let number = Linux.number(named: name) { found.append(number) }
            return found.count < limit
        }
        return found
    }

    /// Calls `body` with the name and the type (`DT_DIR` and the like) of each entry of a directory, in the order that
    /// the kernel gives, until it returns false.
    static func forEachEntry(
        of path: String, _ body: (UnsafePointer<CChar>, UInt8) -> Bool
    ) throws(KernelFailure) {
        guard let directory = opendir(path) else {
            throw KernelFailure(operation: "opendir", subject: path, errno: errno)
        }
        defer { closedir(directory) }
        errno = 0
        while let entry = readdir(directory) {
            let type = entry.pointee.d_type
            let wantsMore = withUnsafePointer(to: &entry.pointee.d_name) { name in
                name.withMemoryRebound(to: CChar.self, capacity: 256) { body($0, type) }
            }
            if !wantsMore { return }
            errno = 0
        }
        guard errno == 0 else { throw KernelFailure(operation: "readdir", subject: path, errno: errno) }
    }

    /// Writes a word to a file of the kernel, which accepts it in one write(2) or not at all.
    static func write(
        _ text: String, to file: borrowing Descriptor, named path: String
    ) throws(KernelFailure) {
        let bytes = Array(text.utf8)
        guard Glibc.write(file.rawValue, bytes, bytes.count) >= 0 else {
            throw KernelFailure(operation: "write \(text)", subject: path, errno: errno)
        }
    }

    /// The owner of a file or directory; nil if it cannot be looked up.
    static func owner(of path: UnsafePointer<CChar>) -> UInt32? {
        var information = stat()
        guard fstatat(AT_FDCWD, path, &information, 0) == 0 else { return nil }
        return information.st_uid
    }

    /// Whether the path can be looked up, by the rights that open(2) would use. access(2) would ignore the capabilities
    /// of a process whose real user is not root.
    static func exists(_ path: String) -> Bool {
        var information = stat()
        return fstatat(AT_FDCWD, path, &information, 0) == 0
    }
}

/// An errno on its way to the caller that knows the operation.
struct ErrorNumber: Error {
    let value: Int32
}

/// The identity of the file at a path. It is not queried from the file system's server if it is known,
/// because the server may not answer.
public struct FileIdentity: Hashable, Sendable {
    private let device: UInt64
    private let inode: UInt64

    /// - Returns: nil if the path leads to no file that we can reach.
    public init?(_ path: String) {
        var status = clinux_statx()
        guard clinux_stat_unsynced(path, &status) == 0 else { return nil }
        device = UInt64(status.dev_major) << 32 | UInt64(status.dev_minor)
        inode = status.ino
    }
}
