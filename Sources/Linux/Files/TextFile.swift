import Glibc

/// The administrator's text files, such as the configuration.
public enum TextFile {
    /// The most bytes that are read of one file.
    public static let limit = 1 << 20

    /// The whole text of a regular file.
    ///
    /// Anything else (a FIFO, a device) is refused, so that reading never waits for another process.
    public static func read(_ path: String) throws(KernelFailure) -> String {
        let file = try openRegular(path)
        return try Files.text(in: file, named: path, limit: limit)
    }

    /// Whether a path leads to the null device: 1:3 of the kernel's devices.txt.
    public static func isNull(_ path: String) -> Bool {
        var status = stat()
        guard stat(path, &status) == 0, status.st_mode & S_IFMT == S_IFCHR else { return false }
        // makedev(3) is a macro: the minor number is in the lowest byte, the major number in the next.
        return status.st_rdev == 1 << 8 | 3
    }

    /// - Parameter isOurs: it is a file that only we make, and never a symbolic link.
    static func openRegular(_ path: String, isOurs: Bool = false) throws(KernelFailure) -> Descriptor {
        // O_NONBLOCK: opening a FIFO does not wait for its writer.
        let file = try Descriptor.open(path, O_NONBLOCK | O_NOCTTY | (isOurs ? O_NOFOLLOW : 0))
        var status = stat()
        guard fstat(file.rawValue, &status) == 0 else {
            throw KernelFailure(operation: "fstat", subject: path, errno: errno)
        }
        guard status.st_mode & S_IFMT == S_IFREG else {
            throw KernelFailure(operation: "read", subject: path, errno: EINVAL)
        }
        return file
    }

    /// The names of the entries of a directory, sorted bytewise; none if it cannot be read.
    public static func names(inDirectory path: String) -> [String] {
        (try? entries(ofDirectory: path)) ?? []
    }

    /// The same; none if there is no such directory, and a failure if it cannot be read.
    public static func entries(ofDirectory path: String) throws(KernelFailure) -> [String] {
        var names: [String] = []
        do throws(KernelFailure) {
            try Files.forEachEntry(of: path) { name, _ in
                names.append(String(cString: name))
                return true
            }
        } catch {
            if !error.isNoSuchFile { throw error }
        }
        names.removeAll { $0 == "." || $0 == ".." }
        return names.sorted { Array($0.utf8).lexicographicallyPrecedes(Array($1.utf8)) }
    }
}
