import AppStateBus
import Glibc
import Linux
import SessionRules

/// Tells that one of the files of the configuration is another.
final class ConfigurationWatch {
    private let paths: [String]
    private let mayBeMissing: Bool
    private let changed: () -> Void
    private var stamps: [Stamp?]
    /// Runs while a file that was there is missing, or empty.
    private var timer: Timer?
    private let loop: EventLoop
    private let replacement: UInt64
    private var watches: [(watch: PathWatch, source: Source)] = []

    /// By what a file that was written anew is told from what it was.
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

    /// - Parameters:
    ///   - replacement: an editor that replaces a file takes less; microseconds.
    ///   - changed: called after a file was written, has come, or has gone.
    init(
        _ configuration: Configuration.Source, loop: EventLoop, replacement: UInt64 = 500_000,
        changed: @escaping () -> Void
    ) throws {
        switch configuration {
        case .layers(let paths): (self.paths, mayBeMissing) = (paths, true)
        case .file(let path): (paths, mayBeMissing) = ([path], false)
        }
        self.changed = changed
        self.loop = loop
        self.replacement = replacement
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
        // A file that has to be there is being replaced.
        guard stamps != self.stamps, mayBeMissing || !stamps.contains(nil) else { return }
        // So may be one that need not be there: without it, all that it says would be let go.
        let isBeingReplaced = zip(self.stamps, stamps).contains { before, now in
            !Self.isEmpty(before) && Self.isEmpty(now)
        }
        if isBeingReplaced && !isLate {
            timer?.arm(at: loop.now + replacement)
            return
        }
        self.stamps = stamps
        changed()
    }

    private static func isEmpty(_ stamp: Stamp?) -> Bool { stamp.map { $0.size == 0 } ?? true }
}
