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

/// Events on one CPU that share a ring.
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

        /// The event that was handed over for this CPU, else a new one.
        func open(cpu: Int32, _ handed: HandedOver) throws(KernelFailure) -> Descriptor {
            if let event = try handed.event(name, cpu: cpu) { return event }
            return try openAnew(cpu)
        }

        /// A new event, disabled and without its filter.
        func openAnew(_ cpu: Int32) throws(KernelFailure) -> Descriptor {
            try Descriptor.taking(make(cpu), "perf_event_open", "\(name) on CPU \(cpu)")
        }
    }

    /// The first has the mapping and is polled; the others write into its ring.
    private let events: [PerfEvent]
    private let mapping: UnsafeMutableRawPointer
    private let pageSize: Int
    private let dataPages: Int

    /// Opens and enables the events. Throws `ENODEV` if the CPU does not exist or is offline. `dataPages` is a power of
    /// two, as the kernel demands.
    init(
        _ sources: [Source], cpu: Int32, dataPages: Int, handed: HandedOver
    ) throws(KernelFailure) {
        var events: [PerfEvent] = []
        for source in sources { events.append(try PerfEvent(source, cpu: cpu, handed)) }
        guard let first = events.first else { preconditionFailure("a ring of no tracepoint") }
        let pageSize = sysconf(Int32(_SC_PAGESIZE))
        let length = (1 + dataPages) * pageSize
        guard
            let mapping = mmap(nil, length, PROT_READ | PROT_WRITE, MAP_SHARED, first.number, 0),
            mapping != MAP_FAILED
        else { throw KernelFailure(operation: "mmap", subject: first.subject, errno: errno) }
        do throws(KernelFailure) {
            for event in events.dropFirst() { try event.write(into: first) }
            for event in events { try event.turn(on: true) }
        } catch {
            munmap(mapping, length)
            throw error
        }
        self.events = events
        self.mapping = mapping
        self.pageSize = pageSize
        self.dataPages = dataPages
    }

    /// One ring for each of these CPUs.
    static func rings(
        _ sources: [Source], on cpus: [Int32], dataPages: Int = 1, handed: HandedOver
    ) throws(KernelFailure) -> [PerfRing] {
        var rings: [PerfRing] = []
        for cpu in cpus {
            rings.append(try PerfRing(sources, cpu: cpu, dataPages: dataPages, handed: handed))
        }
        return rings
    }

    deinit {
        munmap(mapping, (1 + dataPages) * pageSize)
    }

    /// The descriptor to be polled. A poll reports it as readable once. The next poll waits for more records, whether
    /// or not the ring was drained (kernel/events/core.c, `perf_poll`).
    var descriptor: Int32 { events[0].number }

    /// Turns the records on or off, which takes effect at once. Closing the ring does not: the kernel waits some 100 ms
    /// until no task can still be in its tracepoints (`tracepoint_synchronize_unregister`).
    func turn(on isOn: Bool) throws(KernelFailure) {
        for event in events { try event.turn(on: isOn) }
    }

    /// From now on, a record comes for every `period` events.
    func restart(every period: UInt64) throws(KernelFailure) {
        for event in events { try event.restart(every: period) }
    }

    /// Passes every record to `body` and gives the ring back to the kernel. False if records were lost or may have
    /// been.
    func drain(_ body: (UInt32, UnsafeRawBufferPointer) -> Void) -> Bool {
        let head = clinux_perf_head(mapping)
        let tail = clinux_perf_tail(mapping)
        let ring = UnsafeRawBufferPointer(start: mapping + pageSize, count: dataPages * pageSize)
        let whole = PerfRecords(ring: ring).forEach(from: tail, to: head, body)
        clinux_perf_set_tail(mapping, head)
        // The kernel reports lost records only before the next record that fits, so a ring that was nearly full may
        // have lost some silently.
        return whole && head - tail <= UInt64(ring.count / 2)
    }

    /// Discards the unread records. Returns whether there were any.
    func discard() -> Bool {
        let head = clinux_perf_head(mapping)
        guard head != clinux_perf_tail(mapping) else { return false }
        clinux_perf_set_tail(mapping, head)
        return true
    }
}

/// One event on one CPU.
private final class PerfEvent {
    private let descriptor: Descriptor
    let subject: String

    init(_ source: PerfRing.Source, cpu: Int32, _ handed: HandedOver) throws(KernelFailure) {
        subject = "\(source.name) on CPU \(cpu)"
        descriptor = try source.open(cpu: cpu, handed)
        if let filter = source.filter {
            try check(clinux_perf_set_filter(number, filter), "perf set filter")
        }
    }

    var number: Int32 { descriptor.rawValue }

    /// Sends its records to the ring of another event, which must be mapped.
    func write(into other: PerfEvent) throws(KernelFailure) {
        try check(clinux_perf_set_output(number, other.number), "perf set output")
    }

    func turn(on isOn: Bool) throws(KernelFailure) {
        let result = isOn ? clinux_perf_enable(number) : clinux_perf_disable(number)
        try check(result, isOn ? "perf enable" : "perf disable")
    }

    /// Disabled in between: a running event would fire at its next occurrence, whatever the period
    /// (kernel/events/core.c, `_perf_event_period`).
    func restart(every period: UInt64) throws(KernelFailure) {
        try turn(on: false)
        try check(clinux_perf_set_period(number, period), "perf set period")
        try turn(on: true)
    }

    private func check(_ result: Int32, _ operation: String) throws(KernelFailure) {
        guard result >= 0 else {
            throw KernelFailure(operation: operation, subject: subject, errno: -result)
        }
    }
}
