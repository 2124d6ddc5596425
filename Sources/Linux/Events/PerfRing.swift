import CLinux
import Glibc

/// The records between two positions of a perf ring buffer (perf_event_open(2), "MMAP layout").
///
/// A record begins at a multiple of eight and may wrap around to the ring's beginning, so it is copied out first.
struct PerfRecords {
    /// The ring's memory. Its size in bytes is a power of two.
    let ring: UnsafeRawBufferPointer
    /// The longest record that is accepted; ours are about 72 bytes.
    static let longest = 512

    /// Passes each record's type, and the data after its header, to `body`. False if the ring does not hold whole
    /// records: the data between the positions is lost then.
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

/// A sample with `PERF_SAMPLE_TID` and `PERF_SAMPLE_RAW`: the process and thread that were running, the length of the
/// tracepoint's raw data, the raw data.
struct PerfRecord {
    let process: Int32
    private let raw: UnsafeRawBufferPointer

    /// Nil if it is too short.
    init?(_ data: UnsafeRawBufferPointer) {
        guard data.count >= 12 else { return nil }
        let length = Int(data.loadUnaligned(fromByteOffset: 8, as: UInt32.self))
        guard length <= data.count - 12 else { return nil }
        process = data.loadUnaligned(fromByteOffset: 0, as: Int32.self)
        raw = UnsafeRawBufferPointer(rebasing: data[12..<(12 + length)])
    }

    /// The field of four bytes at this place (`Tracepoint.offset`); nil if the data is too short.
    func field(at offset: Int) -> Int32? {
        offset + 4 <= raw.count ? raw.loadUnaligned(fromByteOffset: offset, as: Int32.self) : nil
    }
}

/// An event on one CPU, and the ring that its records go to.
final class PerfRing {
    /// An event, and a filter for the records that are kept. Without a filter, all are kept.
    struct Source {
        let name: String
        /// In the language of Documentation/trace/events.rst, "Event filtering".
        let filter: String?
        /// Opens the event, disabled, on a CPU. Returns a descriptor, or a negative errno.
        private let make: (Int32) -> Int32

        init(tracepoint: Tracepoint, filter: String?) {
            name = tracepoint.name
            self.filter = filter
            make = { clinux_open_tracepoint(tracepoint.id, $0) }
        }

        /// One record for every `period` page faults, of any process.
        init(pageFaults period: UInt64) {
            name = "page faults"
            filter = nil
            make = { clinux_open_page_faults(period, $0) }
        }

        /// A new event, disabled and without its filter.
        func open(_ cpu: Int32) throws(KernelFailure) -> Descriptor {
            try Descriptor.taking(make(cpu), "perf_event_open", "\(name) on CPU \(cpu)")
        }
    }

    private let event: Descriptor
    private let subject: String
    private let pageSize = sysconf(Int32(_SC_PAGESIZE))
    private let dataPages: Int
    private var mapping: UnsafeMutableRawPointer?

    /// Opens and enables the event, the one that was handed over for this CPU if there is one. Throws `ENODEV` if the CPU
    /// does not exist or is offline. `dataPages` is a power of two, as the kernel demands.
    init(_ source: Source, cpu: Int32, dataPages: Int, handed: HandedOver) throws(KernelFailure) {
        subject = "\(source.name) on CPU \(cpu)"
        self.dataPages = dataPages
        if let its = try handed.event(source.name, cpu: cpu) {
            event = its
        } else {
            event = try source.open(cpu)
        }
        if let filter = source.filter {
            try check(clinux_perf_set_filter(descriptor, filter), "perf set filter")
        }
        let length = (1 + dataPages) * pageSize
        guard let mapping = mmap(nil, length, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0),
            mapping != MAP_FAILED
        else { throw KernelFailure(operation: "mmap", subject: subject, errno: errno) }
        self.mapping = mapping
        try turn(on: true)
    }

    /// A ring for each of these events on each of these CPUs.
    static func rings(
        _ sources: [Source], on cpus: [Int32], dataPages: Int = 1, handed: HandedOver
    ) throws(KernelFailure) -> [PerfRing] {
        var rings: [PerfRing] = []
        for cpu in cpus {
            for source in sources {
                rings.append(try PerfRing(source, cpu: cpu, dataPages: dataPages, handed: handed))
            }
        }
        return rings
    }

    deinit {
        if let mapping { munmap(mapping, (1 + dataPages) * pageSize) }
    }

    /// The descriptor to be polled. A poll reports it as readable once. The next poll waits for more records, whether
    /// or not the ring was drained (kernel/events/core.c, `perf_poll`).
    var descriptor: Int32 { event.rawValue }

    /// Turns the records on or off, which takes effect at once. Closing the ring does not: the kernel waits some 100 ms
    /// until no task can still be in its tracepoints (`tracepoint_synchronize_unregister`).
    func turn(on isOn: Bool) throws(KernelFailure) {
        let result = isOn ? clinux_perf_enable(descriptor) : clinux_perf_disable(descriptor)
        try check(result, isOn ? "perf enable" : "perf disable")
    }

    /// From now on, a record comes for every `period` events. Disabled in between: a running event would fire at its next
    /// occurrence, whatever the period (kernel/events/core.c, `_perf_event_period`).
    func restart(every period: UInt64) throws(KernelFailure) {
        try turn(on: false)
        try check(clinux_perf_set_period(descriptor, period), "perf set period")
        try turn(on: true)
    }

    /// Passes every record to `body`, which returns whether it was as expected, and gives the ring back to the kernel.
    /// False if records were lost or may have been.
    func drain(_ body: (PerfRecord) -> Bool) -> Bool {
        guard let mapping else { return true }
        let head = clinux_perf_head(mapping)
        let tail = clinux_perf_tail(mapping)
        let ring = UnsafeRawBufferPointer(start: mapping + pageSize, count: dataPages * pageSize)
        var isWhole = true
        let isRead = PerfRecords(ring: ring).forEach(from: tail, to: head) { type, data in
            switch type {
            case UInt32(PERF_RECORD_SAMPLE.rawValue):
                if PerfRecord(data).map(body) != true { isWhole = false }
            case UInt32(PERF_RECORD_LOST.rawValue), UInt32(PERF_RECORD_THROTTLE.rawValue): isWhole = false
            default: break
            }
        }
        clinux_perf_set_tail(mapping, head)
        // The kernel reports lost records only before the next record that fits, so a ring that was nearly full may
        // have lost some silently.
        return isRead && isWhole && head - tail <= UInt64(ring.count / 2)
    }

    /// Discards the unread records. Returns whether there were any.
    func discard() -> Bool {
        guard let mapping else { return false }
        let head = clinux_perf_head(mapping)
        guard head != clinux_perf_tail(mapping) else { return false }
        clinux_perf_set_tail(mapping, head)
        return true
    }

    private func check(_ result: Int32, _ operation: String) throws(KernelFailure) {
        guard result >= 0 else {
            throw KernelFailure(operation: operation, subject: subject, errno: -result)
        }
    }
}
