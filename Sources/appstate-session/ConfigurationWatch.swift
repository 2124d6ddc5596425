import AppStateBus
import Glibc
import Linux
import SessionRules

/// Reports changes to the files of the configuration.
final class ConfigurationWatch {
    private let paths: [String]
    private let changed: () -> Void
    /// The properties by which a rewritten file is recognized.
    private var stamps: [[Int]]
    private let loop: EventLoop
    private var timer: Timer?
    private var watches: [(watch: PathWatch, source: Source)] = []

    /// An editor needs less time to replace a file; microseconds.
    private static let replacement: UInt64 = 500_000

    /// - Parameter changed: called after a file was written, has appeared, or has disappeared.
    init(
        _ configuration: Configuration.Source, loop: EventLoop, changed: @escaping () -> Void
    ) throws {
        switch configuration {
        case .layers(let paths): self.paths = paths
        case .file(let path): paths = [path]
        }
        self.changed = changed
        self.loop = loop
        stamps = paths.map(Self.stamp)
        timer = try loop.timer { [unowned self] in examine(isLate: true) }
        for path in paths {
            let watch = try PathWatch(path: path, isFile: true)
            let source = try loop.watch(watch.descriptor) { [unowned self] _ in
                if watch.dispatch() { examine(isLate: false) }
            }
            watches.append((watch, source))
        }
    }

    private func examine(isLate: Bool) {
        let stamps = paths.map(Self.stamp)
        guard stamps != self.stamps else { return }
        // Without the delay, all settings of a file that is being replaced would be undone.
        if !isLate, zip(self.stamps, stamps).contains(where: { !$0.isEmpty && $1.isEmpty }) {
            timer?.arm(at: loop.now + Self.replacement)
            return
        }
        self.stamps = stamps
        changed()
    }

    /// Empty: the file is missing, or has no content.
    private static func stamp(_ path: String) -> [Int] {
        var status = stat()
        guard stat(path, &status) == 0, status.st_size > 0 else { return [] }
        return [Int(status.st_ino), Int(status.st_size), status.st_mtim.tv_sec, status.st_mtim.tv_nsec]
    }
}
