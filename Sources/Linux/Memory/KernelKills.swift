import Glibc

/// How many processes the kernel's OOM killer has killed since the machine started: `oom_kill` of
/// `/proc/vmstat`, since Linux 4.13, kept open. This includes kills in cgroups at their limit. There is no
/// notification of a change.
///
/// For one thread at a time. Reading allocates nothing.
public final class KernelKills {
    private let file: KeptFile

    /// Opens `vmstat` below `root`, where proc is mounted, or in a made-up tree in tests.
    public init(root: String = "/proc") throws(KernelFailure) {
        // Some 190 lines of at most 50 bytes.
        file = try KeptFile("\(root)/vmstat", capacity: 16384)
    }

    /// The value now. Throws `EBADMSG` if there is no such line.
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
