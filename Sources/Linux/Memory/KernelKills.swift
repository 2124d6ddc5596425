import Glibc

/// How many processes the kernel has killed for want of memory since the machine started: `oom_kill` of
/// `/proc/vmstat`, since Linux 4.13, kept open. In cgroups at their limit, too. Nobody tells when it changes.
///
/// For one thread at a time. Reading allocates nothing.
public final class KernelKills {
    private let file: KeptFile

    /// Opens `vmstat` below `root`, where proc is mounted, or of a made-up tree in tests.
    public init(root: String = "/proc") throws(KernelFailure) {
        // Some 190 lines of at most 50 bytes.
        file = try KeptFile("\(root)/vmstat", capacity: 16384)
    }

    /// What it says now. Throws `EBADMSG` where there is no such line.
    public func read() throws(KernelFailure) -> UInt64 {
        var kills: UInt64?
        try file.readWhole().forEachLine { line in
            guard line.take("oom_kill ") else { return true }
            kills = line.unsigned()
            return false
        }
        guard let kills else { throw file.failure("parse", EBADMSG) }
        return kills
    }
}
