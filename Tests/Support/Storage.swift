import Foundation
import Glibc

/// Where files are stored, so that the kernel counts what is written there (`write_bytes` of `/proc/PID/io`).
public enum Storage {
    /// A directory of such files; nil: none was found, or the kernel does not count.
    public static let directory: String? = ["/var/tmp", FileManager.default.currentDirectoryPath, "/tmp"]
        .first(where: counts)
    public static let isAvailable = directory != nil && access("/usr/bin/python3", X_OK) == 0
    public static let whatIsMissing = "needs a directory whose files are not in memory and python3"

    /// The path of a new file, which does not exist yet.
    public static func newFile() throws -> String {
        guard let directory else { throw TestFailure("no directory whose files are stored") }
        return newFile(in: directory)
    }

    private static func newFile(in directory: String) -> String {
        "\(directory)/appstated-test-\(UUID().uuidString)"
    }

    private static func counts(_ directory: String) -> Bool {
        let path = newFile(in: directory)
        let file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard file >= 0 else { return false }
        defer { close(file) }
        unlink(path)
        let bytes = [UInt8](repeating: 1, count: 65_536)
        guard let before = written, write(file, bytes, bytes.count) == bytes.count, let after = written else {
            return false
        }
        return after >= before + UInt64(bytes.count)
    }

    /// By this thread.
    private static var written: UInt64? {
        let lines = try? String(contentsOfFile: "/proc/thread-self/io", encoding: .utf8)
        let line = lines?.split(separator: "\n").first { $0.hasPrefix("write_bytes:") }
        return line?.split(separator: " ").last.flatMap { UInt64($0) }
    }
}
