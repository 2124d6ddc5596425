import Glibc

/// Free pages on the per-CPU lists, which avoid contention for the zone's lists: `/proc/zoneinfo`, kept open.
///
/// `MemAvailable` counts them neither as free nor as available (mm/show_mem.c, `si_mem_available`), although the kernel
/// empties the lists before it considers memory short (mm/page_alloc.c, `__alloc_pages_direct_reclaim`). A
/// process that frees much memory at once, for example when it exits, fills them first: with tens of
/// mebibytes for each CPU.
///
/// For one thread at a time. Reading allocates nothing: it is done when memory has run out.
public final class CPUPageLists {
    private let file: KeptFile

    /// Opens `zoneinfo` below `root`, where proc is mounted, or in a made-up tree in tests.
    public init(root: String = "/proc") throws(KernelFailure) {
        let path = "\(root)/zoneinfo"
        // Its length stays about the same: it depends on the number of zones and of CPUs.
        var length = 0
        try Files.forEachLine(of: path) { line in
            length += line.rest.count + 1
            return true
        }
        file = try KeptFile(path, capacity: length + length / 4 + 4096)
    }

    /// The total of all lists now, in bytes.
    public func read() throws(KernelFailure) -> UInt64 {
        var pages: UInt64 = 0
        try file.readWhole().forEachLine { line in
            line.skipBlanks()
            if line.take("count:"), let count = line.unsigned() { pages &+= count }
            return true
        }
        return pages &* UInt64(getpagesize())
    }
}
