import CLinux

/// Which file a path leads to. It is not asked for anew where it is known: the server of its file system may not answer.
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
