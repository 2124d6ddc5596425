import Glibc

/// Tells that a file or a server's socket may have come to a directory, or a directory above it that is not there: inotify(7).
public final class PathWatch {
    private let inotify: Descriptor
    private let path: String
    private let isFile: Bool
    /// That of the directory in which the next one down may come, while that is not there.
    private var ancestor: Int32?

    private var events: UInt32 {
        Self.comings | (isFile ? UInt32(IN_CLOSE_WRITE) | UInt32(IN_DELETE) : 0)
    }
    /// Much may be written in those above, which is nothing to us.
    private static let comings = UInt32(IN_CREATE) | UInt32(IN_MOVED_TO)

    /// - Parameters:
    ///   - path: the file or socket, which need not be there, nor its directory.
    ///   - isFile: told when it has been written, rather than when it comes, and when it goes away; also where it is a link
    ///     to one elsewhere.
    /// - Throws: where the kernel gives nothing to watch with.
    public init(path: String, isFile: Bool = false) throws(KernelFailure) {
        (self.path, self.isFile) = (path, isFile)
        let number = inotify_init1(Int32(IN_CLOEXEC) | Int32(IN_NONBLOCK))
        guard number >= 0 else {
            throw KernelFailure(operation: "inotify_init1", subject: path, errno: errno)
        }
        inotify = Descriptor(owning: number)
        watch()
    }

    /// Can be read when something has come. Open while the watch lives.
    public var descriptor: Int32 { inotify.rawValue }

    /// Takes in what has come; a directory that has come is watched from now on.
    ///
    /// - Returns: whether it is worth a look: not where a file was made that has yet to be written.
    @discardableResult
    public func dispatch() -> Bool {
        var buffer = [UInt8](repeating: 0, count: 4_096)
        var seen: UInt32 = 0
        while true {
            let count = read(inotify.rawValue, &buffer, buffer.count)
            guard count > 0 else { break }
            buffer.withUnsafeBytes { bytes in
                var place = 0
                while place + MemoryLayout<inotify_event>.size <= count {
                    let event = bytes.loadUnaligned(fromByteOffset: place, as: inotify_event.self)
                    seen |= event.mask
                    place += MemoryLayout<inotify_event>.size + Int(event.len)
                }
            }
        }
        watch()
        return !isFile || seen & ~UInt32(IN_CREATE) != 0 || target != nil
    }

    /// What is watched already stays so.
    private func watch() {
        let directory = Self.parent(of: path)
        let former = ancestor
        // From above: what comes in between is seen.
        ancestor = awaitDirectory(Self.parent(of: directory))
        // To take one back is an event, too.
        if let former, former != ancestor { inotify_rm_watch(inotify.rawValue, former) }
        guard inotify_add_watch(inotify.rawValue, directory, events) >= 0, isFile, let target else { return }
        inotify_add_watch(inotify.rawValue, Self.parent(of: target), events)
    }

    /// Watches what comes to a directory; while it is not there, to the nearest one above it that is.
    ///
    /// - Returns: the watch of that one; nil: the directory is there.
    private func awaitDirectory(_ directory: String) -> Int32? {
        if inotify_add_watch(inotify.rawValue, directory, Self.comings) >= 0 { return nil }
        var place = directory
        while place != "/" {
            place = Self.parent(of: place)
            let watch = inotify_add_watch(inotify.rawValue, place, Self.comings)
            guard watch >= 0 else { continue }
            // It may have come meanwhile.
            return inotify_add_watch(inotify.rawValue, directory, Self.comings) >= 0 ? nil : watch
        }
        return nil
    }

    /// Where the file is a link.
    private var target: String? {
        var status = stat()
        guard lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFLNK,
            let pointer = realpath(path, nil)
        else { return nil }
        defer { free(pointer) }
        return String(cString: pointer)
    }

    private static func parent(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/"), slash > path.startIndex else { return "/" }
        return String(path[..<slash])
    }
}
