import Glibc
import Linux

/// The kernel's statistics on the memory of the whole machine.
struct Meters {
    private let memory: MemoryInfo
    private let pressure: PressureFile
    private let events: KernelKills
    private let files: FileCacheCounters

    struct Reading {
        var time: UInt64 = 0
        /// In KiB.
        var available: UInt64 = 0
        var total: UInt64 = 0
        /// Microseconds since boot in which some, or all, tasks waited for memory.
        var some: UInt64 = 0
        var full: UInt64 = 0
        /// File pages in memory, and those that were evicted and read back since boot, in bytes.
        var cached: UInt64 = 0
        var evicted: UInt64 = 0
        var refaulted: UInt64 = 0
    }

    init() {
        self = Scene.demand { () throws(KernelFailure) in
            try Meters(
                memory: MemoryInfo(), pressure: PressureFile(path: "/proc/pressure/memory"),
                events: KernelKills(), files: FileCacheCounters())
        }
    }

    private init(
        memory: MemoryInfo, pressure: PressureFile, events: KernelKills, files: FileCacheCounters
    ) {
        self.files = files
        self.memory = memory
        self.pressure = pressure
        self.events = events
    }

    func read() -> Reading {
        Scene.demand { () throws(KernelFailure) in
            let figures = try memory.read()
            let stall = try pressure.read()
            let files = try files.read()
            return Reading(
                time: now, available: figures.available >> 10, total: figures.total >> 10,
                some: stall.some, full: stall.full, cached: files.cached, evicted: files.evicted,
                refaulted: files.refaulted)
        }
    }

    /// The number of processes that the kernel has killed for lack of memory since boot.
    var kills: UInt64 { Scene.demand { () throws(KernelFailure) in try events.read() } }
}

/// A PSI trigger for stall of the whole machine, with a window of 1 s, which needs CAP_SYS_RESOURCE.
struct Trigger {
    private let trigger: PressureTrigger

    init(_ kind: PressureThreshold.Kind, stall: UInt32) {
        guard let threshold = PressureThreshold(kind, stall: stall, window: 1_000_000) else {
            Scene.fail("no threshold of \(stall)")
        }
        trigger = Scene.demand { () throws(KernelFailure) in
            try PressureTrigger(path: "/proc/pressure/memory", threshold)
        }
        guard trigger.inForce == threshold else { Scene.fail("the kernel takes no trigger \(threshold)") }
    }

    var file: Int32 { trigger.descriptor }
}

extension Scene {
    /// Makes a call without which the scene cannot be played. If it fails, the process ends.
    static func demand<Value>(_ body: () throws(KernelFailure) -> Value) -> Value {
        do {
            return try body()
        } catch {
            fail("\(error)")
        }
    }
}
