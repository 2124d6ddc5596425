import Glibc
import Linux
import Windows

/// Tells that a file or a server's socket may have come to a directory, or its directory to the one above: inotify(7).
final class PathWatch {
    private let inotify: Descriptor
    private let directories: [String]

    private let events: UInt32

    /// - Parameters:
    ///   - path: the file or socket, which need not be there, nor its directory.
    ///   - isFile: told when it has been written, rather than when it comes, and when it goes away.
    /// - Throws: `unreachable` where the kernel gives nothing to watch with.
    init(path: String, isFile: Bool = false) throws(ObserverFailure) {
        events =
            UInt32(IN_MOVED_TO) | (isFile ? UInt32(IN_CLOSE_WRITE) | UInt32(IN_DELETE) : UInt32(IN_CREATE))
        let number = inotify_init1(Int32(IN_CLOEXEC) | Int32(IN_NONBLOCK))
        guard number >= 0 else { throw .unreachable("inotify: \(String(cString: strerror(errno)))") }
        inotify = Descriptor(owning: number)
        let directory = Self.parent(of: path)
        directories = [Self.parent(of: directory), directory]
        watch()
    }

    /// Can be read when something has come. Open while the watch lives.
    var descriptor: Int32 { inotify.rawValue }

    /// Takes in what has come; a directory that has come is watched from now on.
    func dispatch() {
        var buffer = [UInt8](repeating: 0, count: 4_096)
        while read(inotify.rawValue, &buffer, buffer.count) > 0 {}
        watch()
    }

    /// What is watched already stays so; what is not there is passed over.
    private func watch() {
        // Much may be written in the one above, which is nothing to us.
        inotify_add_watch(inotify.rawValue, directories[0], UInt32(IN_CREATE) | UInt32(IN_MOVED_TO))
        inotify_add_watch(inotify.rawValue, directories[1], events)
    }

    private static func parent(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/"), slash > path.startIndex else { return "/" }
        return String(path[..<slash])
    }
}
