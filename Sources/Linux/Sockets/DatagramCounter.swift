import CLinux
import Glibc

/// Counts the bytes that sockets of UDP send and receive. The kernel has no counters for them.
///
/// While a count is under way, a program in the kernel (bpf(2)) runs after each socket call on the machine, at the
/// tracepoints `sock:sock_send_length` and `sock:sock_recv_length`. It adds the length to the counter of the socket if
/// the socket is counted. A datagram counts as 256 bytes at least: the 100 small datagrams per second of a call are
/// more work than their bytes. What one call moves in several datagrams (`UDP_SEGMENT`, `UDP_GRO`) counts once,
/// with all its bytes. A datagram that is only peeked at does not count. Between two counts nothing runs.
///
/// Loading the programs needs `CAP_BPF` and `CAP_PERFMON`, but running them does not. `HandOver` loads them for a
/// process without capabilities. Needs Linux 6.3, and its description of its types (`CONFIG_DEBUG_INFO_BTF`).
///
/// May be used by several threads.
public final class DatagramCounter: @unchecked Sendable {
    /// The most sockets of one count.
    static let mostSockets = 256
    /// The most sockets of one user's counts that are under way. There is room for four users with so many.
    static let mostOfUser = 512

    private let handed: HandedOver
    /// Held while the programs are loaded or attached, which may take 20 ms.
    private let slow = Lock()
    private let lock = Lock()
    // Guarded by the second lock.
    private var table: DatagramTable?
    private var problem: KernelFailure?
    /// The programs cannot be loaded, and no attempt will change that.
    private var isRefused = false
    private var counted: [UInt64: (slot: Int, holders: Int)] = [:]
    private var ofUser: [UInt32: Int] = [:]
    private var counts = 0
    /// Descriptors. While they are open, the programs run.
    private var links: [Int32] = []
    /// The same, not needed at the moment: another thread is about to close them.
    private var retiring: [Int32] = []

    /// Loads nothing yet.
    ///
    /// - Parameter handed: the programs, if they were handed over.
    public init(handed: HandedOver = HandedOver()) { self.handed = handed }

    /// Why the last attempt to count failed: `ENOENT` if the kernel lacks the tracepoints, or if other descriptors were
    /// handed over and the programs were not; `EPERM` if we may not; nil: it did not fail, or there was none.
    public var failure: KernelFailure? { lock.hold { problem } }

    /// Whether the programs are loaded.
    public var isOpen: Bool { lock.hold { table != nil } }

    /// Whether the programs are needed now.
    var isRunning: Bool { lock.hold { !links.isEmpty } }

    /// Loads the programs, at the first call. Takes up to 50 ms if they were not handed over.
    ///
    /// - Returns: whether sockets can be counted.
    public func open() -> Bool {
        slow.hold {
            if lock.hold({ table != nil || isRefused }) { return isOpen }
            var made: DatagramTable?
            var why: KernelFailure?
            do throws(KernelFailure) {
                made = try DatagramTable(DatagramPrograms(handed))
            } catch {
                why = error
            }
            lock.hold {
                (table, problem) = (made, why)
                isRefused = why.map { ![EMFILE, ENFILE, ENOMEM].contains($0.errno) } ?? false
            }
            return made != nil
        }
    }

    /// Begins to count. To be called where waiting is allowed: if a count has ended a moment ago, the kernel takes some
    /// 20 ms.
    ///
    /// - Parameters:
    ///   - sockets: their cookies. The first 256 are counted, but not more than 512 of each user at a time.
    ///   - owner: the user on whose behalf they are counted.
    /// - Returns: the count, which ends when it is released; nil if nothing can be counted.
    public func begin(_ sockets: some Sequence<UInt64>, of owner: UInt32) -> DatagramCount? {
        guard open() else { return nil }
        return slow.hold {
            let cookies = lock.hold { reserve(sockets.prefix(Self.mostSockets), owner) }
            guard !cookies.isEmpty else { return nil }
            guard attach() else {
                end(cookies, of: owner)
                return nil
            }
            return DatagramCount(of: cookies, owner, in: self)
        }
    }

    /// The bytes of sockets that are counted.
    fileprivate func bytes(of cookies: [UInt64]) -> [UInt64] {
        lock.hold {
            cookies.map { cookie in
                guard let table, let entry = counted[cookie] else { return 0 }
                return table.bytes(at: entry.slot)
            }
        }
    }

    fileprivate func end(_ cookies: [UInt64], of owner: UInt32) {
        let isUnneeded = lock.hold {
            for cookie in cookies {
                guard let entry = counted[cookie] else { continue }
                if entry.holders > 1 {
                    counted[cookie] = (entry.slot, entry.holders - 1)
                } else {
                    counted[cookie] = nil
                    table?.clear(entry.slot)
                }
            }
            let left = ofUser[owner, default: 0] - cookies.count
            ofUser[owner] = left > 0 ? left : nil
            counts -= 1
            guard counts == 0, !links.isEmpty else { return false }
            (retiring, links) = (links, [])
            return true
        }
        if isUnneeded { retire() }
    }

    /// Called with the lock. Finds room for those sockets of a new count for which there is some.
    private func reserve(_ sockets: some Sequence<UInt64>, _ owner: UInt32) -> [UInt64] {
        guard let table else { return [] }
        var cookies: [UInt64] = []
        let room = Self.mostOfUser - ofUser[owner, default: 0]
        for cookie in sockets where cookies.count < room {
            if let entry = counted[cookie] {
                counted[cookie] = (entry.slot, entry.holders + 1)
            } else if let slot = table.take(cookie) {
                counted[cookie] = (slot, 1)
            } else {
                continue
            }
            cookies.append(cookie)
        }
        guard !cookies.isEmpty else { return [] }
        ofUser[owner, default: 0] += cookies.count
        counts += 1
        return cookies
    }

    private func attach() -> Bool {
        let programs = lock.hold {
            if links.isEmpty { (links, retiring) = (retiring, []) }
            return links.isEmpty ? table?.programs : nil
        }
        guard let programs else { return true }
        do throws(KernelFailure) {
            let numbers = try programs.attach()
            lock.hold { (links, problem) = (numbers, nil) }
            return true
        } catch {
            let why = error
            lock.hold { problem = why }
            return false
        }
    }

    /// Stops the programs, on another thread: the kernel changes its code on all processors, one after the other. Until
    /// that is done, a new count waits: before Linux 6.10, a program that is being stopped cannot be started again.
    private func retire() {
        let stop: @Sendable () -> Void = { [self] in
            slow.hold {
                let unneeded = lock.hold {
                    defer { retiring = [] }
                    return retiring
                }
                for link in unneeded { _ = Glibc.close(link) }
            }
        }
        if DetachedThread.start(stackSize: 64 << 10, stop) != 0 { stop() }
    }
}

/// A count of the bytes that some sockets have sent and received since it began. It ends when it is released.
public final class DatagramCount: Sendable {
    private let counter: DatagramCounter
    private let cookies: [UInt64]
    private let owner: UInt32
    private let before: [UInt64]
    /// CLOCK_MONOTONIC, in microseconds.
    private let began: UInt64

    fileprivate init(of cookies: [UInt64], _ owner: UInt32, in counter: DatagramCounter) {
        (self.counter, self.cookies, self.owner) = (counter, cookies, owner)
        before = counter.bytes(of: cookies)
        began = Clock.monotonicMicroseconds
    }

    deinit { counter.end(cookies, of: owner) }

    /// The bytes so far.
    public var bytes: UInt64 {
        zip(counter.bytes(of: cookies), before).reduce(0) { $0 &+ ($1.0 &- $1.1) }
    }

    /// Bytes per second so far.
    public var rate: UInt64 {
        let time = Clock.monotonicMicroseconds &- began
        return time > 0 ? UInt64(Double(bytes) * 1_000_000 / Double(time)) : 0
    }
}

/// The programs, and the table into which they count (clinux.h).
final class DatagramPrograms: Sendable {
    let table: Descriptor
    let sent: Descriptor
    let received: Descriptor

    /// The types of the functions that the tracepoints call.
    static let types = ["btf_trace_sock_send_length", "btf_trace_sock_recv_length"]

    /// Takes those that were handed over, else loads them.
    init(_ handed: HandedOver = HandedOver()) throws(KernelFailure) {
        var types: [UInt32] = []
        if let given = try handed.datagrams("table") {
            table = given
        } else if !handed.names.isEmpty {
            // Whoever hands over could not load them either, and the journal says why.
            throw KernelFailure(operation: "take", subject: "the programs from --hand-over", errno: ENOENT)
        } else {
            // Before the rest, because it says early that we may not.
            table = try Descriptor.taking(clinux_make_datagram_table(), "bpf", "BPF_MAP_CREATE")
            types = try KernelTypes().numbers(ofTypedefs: Self.types)
        }
        let number = table.rawValue
        sent = try Self.program("sent", handed, type: types.first, table: number)
        received = try Self.program("received", handed, type: types.last, table: number)
    }

    private static func program(
        _ name: String, _ handed: HandedOver, type: UInt32?, table: Int32
    ) throws(KernelFailure) -> Descriptor {
        // With a new table, new programs.
        guard let type else {
            if let given = try handed.datagrams(name) { return given }
            throw KernelFailure(operation: "take", subject: "the program \(name)", errno: ENOENT)
        }
        return try Descriptor.taking(clinux_load_datagram_program(table, type), "bpf", "BPF_PROG_LOAD")
    }

    /// Runs both until these descriptors are closed.
    func attach() throws(KernelFailure) -> [Int32] {
        let first = try Descriptor.taking(
            clinux_attach_datagram_program(sent.rawValue), "bpf", "BPF_RAW_TRACEPOINT_OPEN")
        let second = try Descriptor.taking(
            clinux_attach_datagram_program(received.rawValue), "bpf", "BPF_RAW_TRACEPOINT_OPEN")
        return [first.release(), second.release()]
    }
}

/// The table in memory.
private final class DatagramTable {
    let programs: DatagramPrograms
    private let slots: UnsafeMutablePointer<clinux_datagram_slot>
    private static let size = Int(CLINUX_DATAGRAM_TABLE)
    private static let slotsInSet = Int(CLINUX_DATAGRAM_SLOTS)

    init(_ programs: DatagramPrograms) throws(KernelFailure) {
        self.programs = programs
        let memory = mmap(nil, Self.size, PROT_READ | PROT_WRITE, MAP_SHARED, programs.table.rawValue, 0)
        guard let memory, memory != MAP_FAILED else {
            throw KernelFailure(operation: "mmap", subject: "the table of datagrams", errno: errno)
        }
        slots = memory.assumingMemoryBound(to: clinux_datagram_slot.self)
        // A former program of this process may have left something.
        for slot in 0..<(Self.size / MemoryLayout<clinux_datagram_slot>.stride) { clear(slot) }
    }

    deinit { munmap(slots, Self.size) }

    /// A free slot for a socket, which is counted from now on; nil if its set is full.
    func take(_ cookie: UInt64) -> Int? {
        let first = Int(cookie % UInt64(CLINUX_DATAGRAM_SETS)) * Self.slotsInSet
        let free = (first..<first + Self.slotsInSet).first { clinux_datagram_cookie(slots + $0) == 0 }
        guard let free else { return nil }
        clinux_set_datagram_cookie(slots + free, cookie)
        return free
    }

    func clear(_ slot: Int) { clinux_set_datagram_cookie(slots + slot, 0) }

    func bytes(at slot: Int) -> UInt64 { clinux_datagram_bytes(slots + slot) }
}
