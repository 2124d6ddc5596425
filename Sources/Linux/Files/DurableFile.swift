import CLinux
import Glibc

/// Files that stay intact after a power cut: either the old version or the new one.
///
/// A file is written beside the old version, synced, and renamed over it, and the directory is synced (fsync(2),
/// "Calling fsync() does not necessarily ensure that the entry in the directory has also reached disk"). This waits for
/// the disk.
public enum DurableFile {
    /// A name that no other file in the same directory has; used by one writer at a time.
    private static let draft = ".new"

    /// Replaces the content of the file by `bytes`.
    public static func write(
        _ bytes: [UInt8], to name: String, in directory: String
    ) throws(KernelFailure) {
        try replace(name, in: directory) { file, path throws(KernelFailure) in
            try WholeFile.append(bytes, to: file, named: path)
        }
    }

    /// The same with the contents of a sealed memory file, piece by piece.
    public static func write(
        _ memory: borrowing SealedMemory, to name: String, in directory: String
    ) throws(KernelFailure) {
        let (number, size) = (memory.rawValue, memory.size)
        try replace(name, in: directory) { file, path throws(KernelFailure) in
            try copy(number, size, to: file, named: path)
        }
    }

    /// Removes a file. A missing file is not a failure.
    public static func remove(_ name: String, in directory: String) throws(KernelFailure) {
        let path = "\(directory)/\(name)"
        guard unlink(path) == 0 else {
            if errno == ENOENT { return }
            throw KernelFailure(operation: "unlink", subject: path, errno: errno)
        }
        try sync(directory)
    }

    /// Opens a file for reading; nil: there is none.
    public static func open(_ path: String) throws(KernelFailure) -> Descriptor? {
        do throws(KernelFailure) {
            return try TextFile.openRegular(path, isOurs: true)
        } catch {
            if error.isNoSuchFile { return nil }
            throw error
        }
    }

    /// A descriptor that is open for reading, with nothing to read.
    public static func openEmpty() throws(KernelFailure) -> Descriptor {
        try Descriptor.open("/dev/null")
    }

    /// The size in bytes; nil if there is nothing of this name. Throws `EINVAL` for anything but a regular file.
    public static func size(of path: String) throws(KernelFailure) -> UInt64? {
        var status = stat()
        guard lstat(path, &status) == 0 else {
            if errno == ENOENT { return nil }
            throw KernelFailure(operation: "lstat", subject: path, errno: errno)
        }
        guard status.st_mode & S_IFMT == S_IFREG else {
            throw KernelFailure(operation: "use", subject: path, errno: EINVAL)
        }
        return UInt64(max(0, status.st_size))
    }

    /// Whether a file with this name was being written when its writer was killed.
    public static func isDraft(_ name: String) -> Bool { name == draft }

    /// Creates a directory that only its owner can access, and the directories above it.
    public static func makeDirectory(_ path: String) throws(KernelFailure) {
        if try makeOne(path) { return }
        guard let slash = path.lastIndex(of: "/"), slash > path.startIndex else {
            throw KernelFailure(operation: "mkdir", subject: path, errno: ENOENT)
        }
        try makeDirectory(String(path[..<slash]))
        guard try makeOne(path) else {
            throw KernelFailure(operation: "mkdir", subject: path, errno: ENOENT)
        }
    }

    /// Returns whether the directory exists now; false: the one above it is missing.
    private static func makeOne(_ path: String) throws(KernelFailure) -> Bool {
        guard mkdir(path, 0o700) != 0 else {
            try sync(String(path[..<(path.lastIndex(of: "/") ?? path.startIndex)]))
            return true
        }
        switch errno {
        case EEXIST: return true
        case ENOENT: return false
        case let number: throw KernelFailure(operation: "mkdir", subject: path, errno: number)
        }
    }

    private static func replace(
        _ name: String, in directory: String,
        _ fill: (borrowing Descriptor, String) throws(KernelFailure) -> Void
    ) throws(KernelFailure) {
        try makeDirectory(directory)
        let path = "\(directory)/\(name)"
        try WholeFile.replace(path, draft: "\(directory)/\(draft)") { file throws(KernelFailure) in
            try fill(file, path)
            guard fsync(file.rawValue) == 0 else {
                throw KernelFailure(operation: "fsync", subject: path, errno: errno)
            }
        }
        try sync(directory)
    }

    private static func sync(_ directory: String) throws(KernelFailure) {
        let file = try Descriptor.open(directory.isEmpty ? "/" : directory, O_RDONLY | O_DIRECTORY)
        guard fsync(file.rawValue) == 0 else {
            throw KernelFailure(operation: "fsync", subject: directory, errno: errno)
        }
    }

    private static let pieceSize = 256 << 10

    private static func copy(
        _ source: Int32, _ size: UInt64, to file: borrowing Descriptor, named path: String
    ) throws(KernelFailure) {
        let piece = UnsafeMutableRawBufferPointer.allocate(byteCount: pieceSize, alignment: 16)
        defer { piece.deallocate() }
        var offset: UInt64 = 0
        while offset < size {
            let wanted = min(piece.count, Int(size - offset))
            let count = pread(source, piece.baseAddress, wanted, off_t(offset))
            if count < 0, errno == EINTR { continue }
            guard count > 0 else {
                throw KernelFailure(
                    operation: "read", subject: "the memory file", errno: count < 0 ? errno : EIO)
            }
            try WholeFile.append(
                UnsafeRawBufferPointer(rebasing: piece[..<count]), to: file.rawValue, named: path)
            offset += UInt64(count)
        }
    }
}
