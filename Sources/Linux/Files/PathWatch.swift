import Glibc

/// Reports that a file or a server's socket may have appeared, also if a directory above it is missing, or one of the names
/// in its path is a link, and has changed: inotify(7).
public final class PathWatch {
    private let inotify: Descriptor
    private let path: String
    private let isFile: Bool
    /// The watches of all directories that matter, by their paths.
    private var watches: [String: Int32] = [:]

    /// A name appears in a directory,
    private static let comings = UInt32(IN_CREATE) | UInt32(IN_MOVED_TO)
    /// or goes away.
    private static let goings = UInt32(IN_DELETE) | UInt32(IN_MOVED_FROM)
    /// The directory itself goes away. Where nothing else matters, many names may come and go.
    private static let end = UInt32(IN_DELETE_SELF) | UInt32(IN_MOVE_SELF)
    /// As many as the kernel follows: path_resolution(7).
    private static let mostLinks = 40

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

    /// Handles what has happened; directories that have appeared are watched from now on.
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
        let former = Set(watches.keys)
        watch()
        // A name that leads elsewhere now brings a file that was written before.
        return !isFile || seen & ~UInt32(IN_CREATE) != 0 || Set(watches.keys) != former
    }

    /// Watches that exist already stay.
    private func watch() {
        var places: [String: UInt32] = [:]
        // What appears before its directory is watched is found by the next round.
        for _ in 0..<3 {
            let present = self.places()
            if present == places { break }
            places = present
            var next: [String: Int32] = [:]
            for (directory, events) in places {
                let number = inotify_add_watch(inotify.rawValue, directory, events)
                if number >= 0 { next[directory] = number }
            }
            // Removing a watch is an event, too.
            for number in Set(watches.values).subtracting(next.values) {
                inotify_rm_watch(inotify.rawValue, number)
            }
            watches = next
        }
    }

    /// The directories that matter, each with the events to watch: those through which the kernel now finds the path, or
    /// would if it were not for a missing one.
    private func places() -> [String: UInt32] {
        var places: [String: UInt32] = [:]
        // Without links.
        var directory = "/"
        var names = Self.names(in: path)
        var links = 0
        while let name = names.popFirst() {
            if name == ".." {
                directory = Self.parent(of: directory)
                continue
            }
            let place = directory == "/" ? "/" + name : directory + "/" + name
            places[directory, default: Self.end] |= names.isEmpty ? Self.comings : 0
            var status = stat()
            guard lstat(place, &status) == 0 else {
                places[directory, default: 0] |=
                    Self.comings | (isFile && names.isEmpty ? UInt32(IN_CLOSE_WRITE) : 0)
                // A directory that is removed stays for as long as a process is in it, and so does its watch.
                places[Self.parent(of: directory), default: 0] |= Self.comings | Self.goings
                return places
            }
            if status.st_mode & S_IFMT == S_IFLNK, links < Self.mostLinks,
                let target = Self.target(of: place)
            {
                links += 1
                places[directory, default: 0] |= Self.comings | Self.goings
                if target.hasPrefix("/") { directory = "/" }
                names = Self.names(in: target) + names
                continue
            }
            if !names.isEmpty {
                directory = place
            } else if isFile {
                places[directory, default: 0] |= Self.goings | UInt32(IN_CLOSE_WRITE)
            }
        }
        return places
    }

    private static func names(in path: String) -> ArraySlice<String> {
        path.split(separator: "/").filter { $0 != "." }.map(String.init)[...]
    }

    private static func target(of link: String) -> String? {
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlink(link, &buffer, buffer.count)
        return count > 0
            ? String(decoding: buffer[..<count].map(UInt8.init(bitPattern:)), as: UTF8.self) : nil
    }

    private static func parent(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/"), slash > path.startIndex else { return "/" }
        return String(path[..<slash])
    }
}
