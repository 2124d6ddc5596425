import AppStateContract
import CCurl
import Glibc
import Linux

/// Files of the user, reached without following a symbolic link.
enum TargetFile {
    /// Why a file cannot be used, by the word of a transfer's error.
    struct Failure: Error, Sendable {
        let word: TransferError
        let sentence: String

        init(_ word: TransferError, _ sentence: String) {
            self.word = word
            self.sentence = sentence
        }

        init(_ operation: String, _ subject: String, _ number: Int32) {
            self.init(
                number == ENOSPC || number == EDQUOT ? .noSpace : number == EEXIST ? .exists : .file,
                "\(operation) \(subject): \(String(cString: strerror(number)))")
        }
    }

    /// O_PATH of open(2), which the C library's module lacks.
    private static let pathOnly: Int32 = 0o10_000_000

    static func split(_ path: String) -> (directory: String, name: String) {
        let slash = path.lastIndex(of: "/") ?? path.startIndex
        return (String(path[..<slash]), String(path[slash...].dropFirst()))
    }

    /// A directory, component by component. What was a link when the transfer began has been resolved then; one that
    /// somebody has put there since is refused.
    static func openDirectory(_ path: String) throws(Failure) -> Descriptor {
        var directory = Descriptor(owning: open("/", pathOnly | O_DIRECTORY | O_CLOEXEC))
        let flags = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
        for name in path.split(separator: "/") {
            let next = openat(directory.rawValue, String(name), pathOnly | flags)
            guard next >= 0 else { throw Failure("open", path, errno) }
            directory = Descriptor(owning: next)
        }
        // To be synced, it has to be open for reading.
        let number = openat(directory.rawValue, ".", O_RDONLY | flags)
        guard number >= 0 else { throw Failure("open", path, errno) }
        return Descriptor(owning: number)
    }

    /// The temporary file in the target's directory, made if it is missing.
    static func openTemporary(_ record: Record) throws(Failure) -> Descriptor {
        try openTemporary(record, in: try openDirectory(split(record.target).directory), O_CREAT)
    }

    private static func openTemporary(
        _ record: Record, in directory: borrowing Descriptor, _ creation: Int32
    ) throws(Failure) -> Descriptor {
        let (path, _) = split(record.target)
        let number = openat(
            directory.rawValue, record.temporaryName,
            O_RDWR | creation | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode_t(record.mode))
        guard number >= 0 else {
            throw creation == 0 && errno == ENOENT
                ? replaced(record) : Failure("create a file in", path, errno)
        }
        let file = Descriptor(owning: number)
        var status = stat()
        // In a directory that others may write to, somebody else may have made it.
        guard fstat(number, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_uid == geteuid(),
            status.st_nlink == 1
        else { throw Failure(.file, "\(path)/\(record.temporaryName) is somebody else's") }
        return file
    }

    private static func replaced(_ record: Record) -> Failure {
        let directory = split(record.target).directory
        return Failure(.file, "\(directory), or the file in it that was being written, has been replaced")
    }

    static func openForReading(_ path: String) throws(Failure) -> Descriptor {
        let (above, name) = split(path)
        let directory = try openDirectory(above)
        let number = openat(directory.rawValue, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard number >= 0 else { throw Failure("open", path, errno) }
        let file = Descriptor(owning: number)
        var status = stat()
        guard fstat(number, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            throw Failure(.file, "\(path) is not a regular file")
        }
        return file
    }

    static func size(ofDescriptor file: Int32) -> UInt64 {
        var status = stat()
        return fstat(file, &status) == 0 ? UInt64(max(0, status.st_size)) : 0
    }

    static func removeTemporary(_ record: Record) {
        guard !record.target.isEmpty, let directory = try? openDirectory(split(record.target).directory)
        else {
            return
        }
        unlinkat(directory.rawValue, record.temporaryName, 0)
    }

    // MARK: Landing, in the worker

    /// Checks the complete temporary file, puts it on the disk, and gives it the target's name.
    ///
    /// - Parameters:
    ///   - received: the file that was written. Its directory may have been moved, and another one may have the name.
    ///     nil: after a crash, when the record has the file's number.
    ///   - note: writes down the number of the file, before it gets its name. After a crash, `land` goes on from there.
    static func land(
        _ record: Record, received: Int32?, _ note: (_ inode: UInt64) throws(KernelFailure) -> Void
    ) throws(Failure) {
        let (path, name) = split(record.target)
        let directory = try openDirectory(path)
        var status = stat()
        if record.stage == .landing, fstatat(directory.rawValue, name, &status, AT_SYMLINK_NOFOLLOW) == 0,
            status.st_ino == record.inode
        {
            // It has its name; the other one may be left.
            unlinkat(directory.rawValue, record.temporaryName, 0)
            return try sync(directory, path)
        }
        let file = try openTemporary(record, in: directory, 0)
        guard fstat(file.rawValue, &status) == 0 else { throw Failure("stat", path, errno) }
        let inode = status.st_ino
        if let received {
            var own = stat()
            guard fstat(received, &own) == 0, own.st_ino == inode, own.st_dev == status.st_dev else {
                throw replaced(record)
            }
        } else if inode != record.inode {
            throw replaced(record)
        }
        if !record.sha256.isEmpty {
            guard try sha256(of: file, path) == record.sha256 else {
                throw Failure(.hash, "the bytes received do not have the SHA-256 \(record.sha256)")
            }
        }
        try sync(file, path)
        do throws(KernelFailure) {
            try note(UInt64(inode))
        } catch {
            throw Failure("record", record.target, error.errno)
        }
        try rename(in: directory, record.temporaryName, name, record)
        guard fstatat(directory.rawValue, name, &status, AT_SYMLINK_NOFOLLOW) == 0, status.st_ino == inode
        else { throw replaced(record) }
        try sync(directory, path)
    }

    private static func rename(
        in directory: borrowing Descriptor, _ from: String, _ name: String, _ record: Record
    ) throws(Failure) {
        let number = directory.rawValue
        var status = stat()
        if !record.replaces {
            if linkat(number, from, number, name, 0) == 0 {
                unlinkat(number, from, 0)
                return
            }
            // Some file systems have no hard links.
            let why = errno
            guard [EPERM, EOPNOTSUPP, ENOSYS, EMLINK].contains(why),
                fstatat(number, name, &status, AT_SYMLINK_NOFOLLOW) != 0
            else { throw Failure("make", record.target, why == EPERM ? EEXIST : why) }
        }
        guard renameat(number, from, number, name) == 0 else { throw Failure("make", record.target, errno) }
    }

    private static func sync(_ file: borrowing Descriptor, _ path: String) throws(Failure) {
        guard fsync(file.rawValue) == 0 else { throw Failure("fsync in", path, errno) }
    }

    private static func sha256(of file: borrowing Descriptor, _ path: String) throws(Failure) -> String {
        let context = EVP_MD_CTX_new()
        defer { EVP_MD_CTX_free(context) }
        let piece = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 18, alignment: 16)
        defer { piece.deallocate() }
        guard EVP_DigestInit_ex(context, EVP_sha256(), nil) == 1 else {
            throw Failure(.hash, "libcrypto has no SHA-256")
        }
        var offset: off_t = 0
        while true {
            let count = pread(file.rawValue, piece.baseAddress, piece.count, offset)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw Failure("read in", path, errno) }
            if count == 0 { break }
            EVP_DigestUpdate(context, piece.baseAddress, count)
            offset += off_t(count)
        }
        var digest = [UInt8](repeating: 0, count: 32)
        EVP_DigestFinal_ex(context, &digest, nil)
        return digest.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
}
