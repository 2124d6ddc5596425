import CLinux
import Glibc

/// The records between two positions of a perf ring buffer (perf_event_open(2), "MMAP layout").
///
/// A record begins at a multiple of eight and may go on at the ring's beginning: it is copied out first.
struct PerfRecords {
    /// The ring's memory: a power of two of bytes.
    let ring: UnsafeRawBufferPointer
    /// The longest record that is taken; ours are about 72 bytes.
    static let longest = 512

    /// Gives each record's type and what follows its header. False where the ring holds no whole records:
    /// what was between the positions is lost.
    func forEach(
        from tail: UInt64, to head: UInt64, _ body: (UInt32, UnsafeRawBufferPointer) -> Void
    ) -> Bool {
        guard head >= tail, head - tail <= UInt64(ring.count) else { return false }
        return withUnsafeTemporaryAllocation(byteCount: Self.longest, alignment: 8) { record in
            var position = tail
            while position < head {
                guard head - position >= 8 else { return false }
                copy(8, from: position, to: record)
                let type = record.load(fromByteOffset: 0, as: UInt32.self)
                let size = Int(record.load(fromByteOffset: 6, as: UInt16.self))
                guard size >= 8, size <= record.count, UInt64(size) <= head - position else { return false }
                copy(size, from: position, to: record)
                body(type, UnsafeRawBufferPointer(rebasing: record[8..<size]))
                position += UInt64(size)
            }
            return true
        }
    }

    private func copy(_ count: Int, from position: UInt64, to record: UnsafeMutableRawBufferPointer) {
        let start = Int(position % UInt64(ring.count))
        let first = min(count, ring.count - start)
        record.copyMemory(from: UnsafeRawBufferPointer(rebasing: ring[start..<(start + first)]))
        guard first < count else { return }
        UnsafeMutableRawBufferPointer(rebasing: record[first...])
            .copyMemory(from: UnsafeRawBufferPointer(rebasing: ring[..<(count - first)]))
    }
}

/// One tracepoint on one CPU with its ring.
final class PerfRing {
    private let event: Descriptor
    private let mapping: UnsafeMutableRawPointer
    private let pageSize: Int

    /// 32 KiB with pages of 4: about 450 records. A power of two, as the kernel demands.
    static let dataPages = 8

    /// Opens and enables it; `ENODEV` where there is no such CPU, or it is off.
    init(tracepoint id: UInt64, cpu: Int32, filter: String) throws(KernelFailure) {
        let subject = "signal:signal_generate on CPU \(cpu)"
        let event = try Descriptor.taking(clinux_open_tracepoint(id, cpu), "perf_event_open", subject)
        let filtered = clinux_perf_set_filter(event.rawValue, filter)
        guard filtered >= 0 else {
            throw KernelFailure(operation: "perf set filter", subject: subject, errno: -filtered)
        }
        let pageSize = sysconf(Int32(_SC_PAGESIZE))
        let length = (1 + Self.dataPages) * pageSize
        guard
            let mapping = mmap(nil, length, PROT_READ | PROT_WRITE, MAP_SHARED, event.rawValue, 0),
            mapping != MAP_FAILED
        else { throw KernelFailure(operation: "mmap", subject: subject, errno: errno) }
        let enabled = clinux_perf_enable(event.rawValue)
        guard enabled >= 0 else {
            munmap(mapping, length)
            throw KernelFailure(operation: "perf enable", subject: subject, errno: -enabled)
        }
        self.event = event
        self.mapping = mapping
        self.pageSize = pageSize
    }

    deinit {
        munmap(mapping, (1 + Self.dataPages) * pageSize)
    }

    var descriptor: Int32 { event.rawValue }

    /// Gives every record and the ring back to the kernel; false where records were lost or may have been.
    func drain(_ body: (UInt32, UnsafeRawBufferPointer) -> Void) -> Bool {
        let head = clinux_perf_head(mapping)
        let tail = clinux_perf_tail(mapping)
        let ring = UnsafeRawBufferPointer(
            start: mapping + pageSize, count: Self.dataPages * pageSize)
        let whole = PerfRecords(ring: ring).forEach(from: tail, to: head, body)
        clinux_perf_set_tail(mapping, head)
        // The kernel tells of lost records only before the next one that fits: a ring that was nearly full
        // may have lost some without a word.
        return whole && head - tail <= UInt64(ring.count / 2)
    }
}
