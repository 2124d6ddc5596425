import Glibc
import Linux

/// Starts the event, and records its effects. Its memory is locked and it has priority over all others, so that it
/// neither waits with them nor gets in their way: it takes a sample every 20 ms, unless something else wakes it.
struct Watch {
    /// The participants of the scene.
    struct Plan {
        var growing: Bool
        var board: String
        /// The percentage of the machine's memory at which the guard begins to act, by its own settings; nil: the guard
        /// does not act on available memory.
        var line: UInt64?
        var names: [String] = []
        var processes: [Int32] = []

        /// `SCENE BOARD LINE NAME=PID...`, `-` for no line; nil if the words do not have this form.
        init?(words: [String]) {
            guard words.count > 3, ["A", "B", "C", "D", "DS", "E", "ES"].contains(words[0]) else {
                return nil
            }
            growing = words[0] != "C"
            board = words[1]
            line = UInt64(words[2])
            guard words[2] == "-" || line.map({ $0 <= 100 }) == true else { return nil }
            for word in words.dropFirst(3) {
                let parts = word.split(separator: "=")
                guard parts.count == 2, let pid = Int32(parts[1]) else { return nil }
                names.append(String(parts[0]))
                processes.append(pid)
            }
            guard names.contains("front"), growing || names.contains("leak") else { return nil }
        }
    }

    /// How long the front only answers before the event, in microseconds.
    static let quiet: UInt64 = 3_000_000
    /// The time that is watched after the front has grown or died, in microseconds. Some guards end one process after
    /// the other while their line is crossed.
    static let after: UInt64 = 8_000_000
    /// The longest event, in microseconds.
    static let limit: UInt64 = 60_000_000
    /// The leak's event always takes this long, in microseconds, whatever happens to the leak.
    static let leaking: UInt64 = 30_000_000
    /// The time between two samples, in milliseconds.
    static let look: Int32 = 20

    let board: Board
    let plan: Plan
    var record: Record
    private let meters = Meters()

    static func run(_ plan: Plan) -> Never {
        var watch = Watch(board: Board(path: plan.board), plan: plan, record: Record(names: plan.names))
        mlockall(Int32(MCL_CURRENT) | Int32(MCL_FUTURE))
        var priority = sched_param(sched_priority: 1)
        sched_setscheduler(0, SCHED_FIFO, &priority)
        watch.watchEvent()
        watch.record.report(growing: plan.growing, line: plan.line, board: watch.board)
        exit(0)
    }

    private mutating func watchEvent() {
        var held: [Int32] = []
        for pid in plan.processes {
            guard let process = try? PidFD(pid: pid) else { Scene.fail("no process \(pid)") }
            held.append(fcntl(process.rawValue, F_DUPFD_CLOEXEC, 3))
        }
        let some = Trigger(.some, stall: 70_000)
        let full = Trigger(.full, stall: 700_000)
        var polled = held.map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
        polled.append(pollfd(fd: some.file, events: Int16(POLLPRI), revents: 0))
        polled.append(pollfd(fd: full.file, events: Int16(POLLPRI), revents: 0))

        record.quietBegan = now
        sleep(until: now + Self.quiet)
        record.killsBefore = meters.kills
        record.began(meters.read())
        guard kill(process(plan.growing ? "front" : "leak"), SIGUSR1) == 0 else {
            Scene.fail("the event's cause has died before it")
        }
        while !isOver {
            let ready = poll(&polled, nfds_t(polled.count), Self.look)
            let reading = meters.read()
            record.add(reading)
            guard ready > 0 else { continue }
            for index in polled.indices where polled[index].revents != 0 {
                if index < held.count {
                    record.died(index, at: reading.time)
                    polled[index].fd = -1
                } else {
                    record.triggered(full: index > held.count, at: reading.time)
                }
            }
        }
        record.killsAfter = meters.kills
    }

    private func process(_ name: String) -> Int32 {
        plan.names.firstIndex(of: name).map { plan.processes[$0] } ?? -1
    }

    /// Whether everything has been watched; the event itself may have ended earlier.
    private var isOver: Bool {
        let time = now
        guard plan.growing else { return time >= record.start.time + Self.leaking }
        if time >= record.start.time + Self.limit { return true }
        if let death = record.end(of: "front") { return time >= death + Self.after }
        return board[.grown] != 0 && time >= board[.grown] + Self.after
    }
}
