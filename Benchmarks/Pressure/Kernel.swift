import Glibc

/// A file of the kernel's, opened once and read from its beginning each time, without allocating.
struct KernelFile {
    private let file: Int32
    private let path: String
    private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 16384, alignment: 8)

    init(_ path: String) {
        self.path = path
        file = open(path, O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { Scene.fail("cannot read \(path)") }
    }

    /// The number after the first key, and the one after the second where that stands after the first.
    func numbers(after first: StaticString, then second: StaticString) -> (UInt64, UInt64) {
        let count = pread(file, buffer.baseAddress, buffer.count, 0)
        guard count > 0 else { Scene.fail("cannot read \(path)") }
        var text = UnsafeRawBufferPointer(rebasing: buffer[..<count])
        return (Self.number(after: first, in: &text), Self.number(after: second, in: &text))
    }

    func number(after key: StaticString) -> UInt64 { numbers(after: key, then: "").0 }

    private static func number(after key: StaticString, in text: inout UnsafeRawBufferPointer) -> UInt64 {
        let length = key.utf8CodeUnitCount
        guard length > 0, text.count >= length, let base = text.baseAddress,
            let start = (0...text.count - length).first(where: {
                memcmp(base + $0, key.utf8Start, length) == 0
            })
        else { return 0 }
        var index = start + length
        while index < text.count, text[index] == UInt8(ascii: " ") { index += 1 }
        var value: UInt64 = 0
        while index < text.count, case let digit = text[index] &- UInt8(ascii: "0"), digit < 10 {
            value = value &* 10 &+ UInt64(digit)
            index += 1
        }
        text = UnsafeRawBufferPointer(rebasing: text[index...])
        return value
    }
}

/// The kernel's account of memory, of the whole machine.
struct Meters {
    private let memory = KernelFile("/proc/meminfo")
    private let pressure = KernelFile("/proc/pressure/memory")
    private let events = KernelFile("/proc/vmstat")

    struct Reading {
        var time: UInt64 = 0
        /// KiB.
        var available: UInt64 = 0
        /// Microseconds in which some, or all, tasks waited for memory, since the machine was started.
        var some: UInt64 = 0
        var full: UInt64 = 0
    }

    func read() -> Reading {
        let available = memory.number(after: "MemAvailable:")
        let (some, full) = pressure.numbers(after: "total=", then: "total=")
        return Reading(time: now, available: available, some: some, full: full)
    }

    /// Processes that the kernel killed for lack of memory, since the machine was started.
    var kills: UInt64 { events.number(after: "\noom_kill ") }
}

/// A trigger of the kernel's for stall of the whole machine; a window of 1 s needs CAP_SYS_RESOURCE.
struct Trigger {
    let file: Int32

    /// `line` as in Documentation/accounting/psi.rst: "some 70000 1000000".
    init(_ line: String) {
        file = open("/proc/pressure/memory", O_RDWR | O_NONBLOCK | O_CLOEXEC)
        let written = line.withCString { write(file, $0, strlen($0) + 1) }
        guard file >= 0, written > 0 else { Scene.fail("the kernel takes no trigger \(line)") }
    }
}
