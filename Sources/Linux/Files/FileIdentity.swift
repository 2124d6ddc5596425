import CLinux

/// The identity of the file at a path. It is not queried from the file system's server if it is known,
/// because the server may not answer.
public struct FileIdentity: Hashable, Sendable {
    private let device: UInt64
    private let inode: UInt64

    /// - Returns: nil if the path leads to no file that we can reach.
    public init?(_ path: String) {
        var status = clinux_statx()
        guard clinux_stat_unsynced(path, &status) == 0 else { return nil }
        device = UInt64(status.dev_major) << 32 | UInt64(status.dev_minor)
        inode = status.ino
    }
}
