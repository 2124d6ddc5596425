import AppStateBus
import Glibc
import Linux
import SessionRules

/// Reports changes to the files of the configuration.
final class ConfigurationWatch {
    private let paths: [String]
    private let mayBeMissing: Bool
    private let changed: () -> Void
    private var stamps: [Stamp?]
    /// Runs while a file that existed is missing or empty.
    private var timer: Timer?
    private let loop: EventLoop
    private var watches: [(watch: PathWatch, source: Source)] = []

    /// The properties by which a rewritten file is recognized.
    private struct Stamp: Equatable {
        let inode: UInt
        let size: Int
        let seconds: Int
        let nanoseconds: Int

        init?(_ path: String) {
            var status = stat()
            guard stat(path, &status) == 0 else { return nil }
            inode = UInt(status.st_ino)
            size = Int(status.st_size)
            (seconds, nanoseconds) = (status.st_mtim.tv_sec, status.st_mtim.tv_nsec)
        }
    }

    /// An editor needs less time to replace a file; microseconds.
    private static let replacement: UInt64 = 500_000

    /// - Parameter changed: called after a file was written, has appeared, or has disappeared.
    init(
        _ configuration: Configuration.Source, loop: EventLoop, changed: @escaping () -> Void
    ) throws {
        switch configuration {
        case .layers(let paths): (self.paths, mayBeMissing) = (paths, true)
        case .file(let path): (paths, mayBeMissing) = ([path], false)
        }
        self.changed = changed
        self.loop = loop
        stamps = paths.map(Stamp.init)
        timer = try loop.timer { [unowned self] in look(isLate: true) }
        for path in paths {
            let watch = try PathWatch(path: path, isFile: true)
            let source = try loop.watch(watch.descriptor) { [unowned self] _ in dispatch(watch) }
            watches.append((watch, source))
        }
    }

    private func dispatch(_ watch: PathWatch) {
        if watch.dispatch() { look(isLate: false) }
    }

    private func look(isLate: Bool) {
        let stamps = paths.map(Stamp.init)
        // A file that must exist is being replaced.
        guard stamps != self.stamps, mayBeMissing || !stamps.contains(nil) else { return }
        // A file that may be absent can be in the middle of a replacement, too. Without the delay, all its
        // settings would be undone.
        let isBeingReplaced = zip(self.stamps, stamps).contains { before, now in
            !Self.isEmpty(before) && Self.isEmpty(now)
        }
        if isBeingReplaced && !isLate {
            timer?.arm(at: loop.now + Self.replacement)
            return
        }
        self.stamps = stamps
        changed()
    }

    private static func isEmpty(_ stamp: Stamp?) -> Bool { stamp.map { $0.size == 0 } ?? true }
}
