import Glibc

/// Reports that a file or a server's socket may have appeared in a directory, or a missing directory above it:
/// inotify(7).
public final class PathWatch {
    private let inotify: Descriptor
    private let path: String
    private let isFile: Bool
    /// The watch of the directory in which the next one down may appear, while that is missing.
    private var ancestor: Int32?

    private var events: UInt32 {
        Self.comings | (isFile ? UInt32(IN_CLOSE_WRITE) | UInt32(IN_DELETE) : 0)
    }
    /// In the directories above, many writes may occur that do not matter to us.
    private static let comings = UInt32(IN_CREATE) | UInt32(IN_MOVED_TO)

    /// - Parameters:
    ///   - path: the file or socket. It need not exist, nor need its directory.
    ///   - isFile: reports when the file has been written, rather than when it appears, and when it goes away; also if
    ///     it is a link to a file elsewhere.
    /// - Throws: if the kernel does not provide a watch.
    public init(path: String, isFile: Bool = false) throws(KernelFailure) {
        (self.path, self.isFile) = (path, isFile)
        let number = inotify_init1(Int32(IN_CLOEXEC) | Int32(IN_NONBLOCK))
        guard number >= 0 else {
            throw KernelFailure(operation: "inotify_init1", subject: path, errno: errno)
        }
        inotify = Descriptor(owning: number)
        watch()
    }

    /// Readable when something has appeared. Open while the watch lives.
    public var descriptor: Int32 { inotify.rawValue }

    /// Handles new entries; a directory that has appeared is watched from now on.
    ///
    /// - Returns: whether a check is worthwhile: false if a file was created but not yet written.
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

    /// Watches that exist already stay.
    private func watch() {
        let directory = Self.parent(of: path)
        var next: Int32?
        // A link may be replaced without an event in the directory that it leads to.
        if add(directory, events) == nil || Self.isLink(directory) {
            next = watchAncestor(of: directory)
            // It, or a nearer one, may have appeared before that watch existed.
            let nearer =
                add(directory, events) != nil && !Self.isLink(directory) ? nil : watchAncestor(of: directory)
            if let next, next != nearer { inotify_rm_watch(inotify.rawValue, next) }
            next = nearer
        }
        // Removing a watch is an event, too.
        if let ancestor, ancestor != next { inotify_rm_watch(inotify.rawValue, ancestor) }
        ancestor = next
        if isFile, let target { _ = add(Self.parent(of: target), events) }
    }

    /// Watches a directory, and whether it stays where it is; nil: it cannot be watched.
    private func add(_ directory: String, _ events: UInt32) -> Int32? {
        let watch = inotify_add_watch(
            inotify.rawValue, directory, events | UInt32(IN_DELETE_SELF) | UInt32(IN_MOVE_SELF))
        return watch < 0 ? nil : watch
    }

    /// Watches new entries in the nearest directory above this one that can be watched.
    private func watchAncestor(of directory: String) -> Int32? {
        var place = directory
        while place != "/" {
            place = Self.parent(of: place)
            if let watch = add(place, Self.comings) { return watch }
        }
        return nil
    }

    private static func isLink(_ directory: String) -> Bool {
        var status = stat()
        return lstat(directory, &status) == 0 && status.st_mode & S_IFMT == S_IFLNK
    }

    /// The file's target, if it is a link.
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
