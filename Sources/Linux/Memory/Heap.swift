import CLinux

/// The C library's heap.
public enum Heap {
    /// Gives each block of 128 KiB or more a mapping of its own, which is gone as soon as the block is freed.
    ///
    /// Otherwise glibc raises this size to that of the largest block that was ever freed, up to 32 MiB, and keeps
    /// up to twice as much free memory at the end of the heap (mallopt(3), `M_MMAP_THRESHOLD`). One long message
    /// would then cost that much memory for as long as the process runs.
    public static func returnLargeBlocks() {
        _ = clinux_set_mmap_threshold(128 << 10)
    }
}
