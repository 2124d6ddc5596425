import AppStateBus
import AppStateContract
import ArgumentParser
import Glibc
import Linux

struct Top: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Show applications as they change, and suspend, resume, keep or end them by keys.",
        discussion: """
            Keys: up and down choose an application; s suspends it, r resumes it, k keeps it from being suspended by \
            policy while top runs, or no longer, e ends it, after a question; t, m and p sort by state, memory and \
            processor time; q ends.
            """)

    @OptionGroup var bus: BusOptions
    @Option(help: "What to sort by.") var sort = Order.state

    enum Order: String, ExpressibleByArgument, CaseIterable {
        case state, memory, processor
    }

    func run() throws {
        try Screen.check()
        let client = try bus.connect()
        throw ExitCode(try LiveView(client, by: sort).run())
    }
}

/// What `top` shows.
struct TopFrame {
    struct Row {
        let id: String
        let pid: Int32
        var state: String
        /// nil: its process is gone.
        var meter: ApplicationMeter?
        var figures: ApplicationMeter.Figures?
        /// Of one processor, since the figures before.
        var share = 0.0
        /// It is kept as long as this descriptor is open.
        var inhibitor: Int32?

        var memory: UInt64 { figures?.resident ?? 0 }
    }

    var rows: [String: Row] = [:]
    var order = Top.Order.state
    /// The path of the application that the keys are for.
    private(set) var chosen: String?
    /// A question or a message, in place of the keys.
    var notice: String?

    private static let states: [LifeCycleState] = [.active, .inactive, .background, .suspended, .notRunning]
    /// Each word begins with its key.
    private static let keys = ["suspend", "resume", "keep", "end", "quit"].reduce(Line("")) {
        $0 + Line(String($1.prefix(1)), .bold) + Line("\($1.dropFirst()) ")
    }

    /// The paths in the order in which they are shown.
    var paths: [String] {
        func rank(_ row: Row) -> Int {
            Self.states.firstIndex { $0.rawValue == row.state } ?? Self.states.count
        }
        return rows.sorted { left, right in
            let (a, b) = (left.value, right.value)
            switch order {
            case .state where rank(a) != rank(b): return rank(a) < rank(b)
            case .memory where a.memory != b.memory: return a.memory > b.memory
            case .processor where a.share != b.share: return a.share > b.share
            case .processor where a.figures?.processor != b.figures?.processor:
                return a.figures?.processor ?? 0 > b.figures?.processor ?? 0
            default: return (a.id, left.key) < (b.id, right.key)
            }
        }.map(\.key)
    }

    /// Chooses another application, so many rows further.
    mutating func move(_ count: Int) {
        let paths = paths
        guard let last = paths.indices.last else {
            chosen = nil
            return
        }
        let place = chosen.flatMap { paths.firstIndex(of: $0) } ?? 0
        chosen = paths[max(0, min(last, place + count))]
    }

    mutating func remove(_ path: String) {
        if path == chosen {
            let paths = paths
            // What takes its place.
            let place = paths.firstIndex(of: path) ?? 0
            chosen = place + 1 < paths.count ? paths[place + 1] : place > 0 ? paths[place - 1] : nil
        }
        rows[path] = nil
    }

    /// The lines for a screen of this size.
    func lines(width: Int, height: Int) -> [Line] {
        let paths = paths
        // Columns that a narrow screen has no room for.
        let extra = width < 50 ? 0 : width < 64 ? 1 : 2
        let titles =
            ["  APPLICATION", "STATE", "  MEMORY", " CPU %"] + ["    TIME", "    SWAP"].prefix(extra)
        var table = Table(titles, givingWay: [(0, 10), (1, 6), (0, 3)])
        for path in paths {
            guard let row = rows[path] else { continue }
            func amount(_ text: String?) -> Line { Line(text ?? "–").padded(to: 8, before: true) }
            let figures = row.figures
            let cells = [
                Line((path == chosen ? "> " : "  ") + row.id),
                Line(state: row.state) + Line(row.inhibitor == nil ? "" : " kept"),
                amount(figures.map { appstatectl.memory($0.resident) }),
                Line(figures == nil ? "–" : String(Int((row.share * 100).rounded()))).padded(
                    to: 6, before: true),
                amount(figures.map { span(of: Int64($0.processor / 1_000_000)) }),
                amount(figures.map { $0.swapped == 0 ? "–" : appstatectl.memory($0.swapped) }),
            ]
            table.add(Array(cells.prefix(4 + extra)))
        }
        let all = table.lines(width: width)
        let room = max(1, height - 3)
        let place = chosen.flatMap { paths.firstIndex(of: $0) } ?? 0
        let first = max(0, min(place - room / 2, paths.count - room))
        var body = all.dropFirst().enumerated().map { $0 == place && chosen != nil ? $1.chosen : $1 }
        body = Array(body.dropFirst(first).prefix(room))
        body += Array(repeating: Line(""), count: room - body.count)
        let sorts = width < 76 ? "t/m/p" : " sort by state (t), memory (m), processor (p)"
        let foot = notice.map { Line($0, .bold) } ?? Self.keys + Line(sorts)
        let lines = [Line(summary), all[0]] + body + [foot]
        return lines.suffix(max(1, height)).map { $0.cut(to: width) }
    }

    private var summary: String {
        let counts = Self.states.map { state in
            (state.rawValue, rows.values.count { $0.state == state.rawValue })
        }
        let memory = rows.values.reduce(0) { $0 + $1.memory }
        return "\(rows.count) by \(order.rawValue): "
            + (counts.filter { $0.1 > 0 }.map { "\($0.1) \($0.0)" } + [appstatectl.memory(memory)])
            .joined(separator: ", ")
    }
}

/// Draws what happens, and does what keys say.
private final class LiveView {
    private let client: Client
    private let subscription: Subscription
    private var frame = TopFrame()
    private var measured: UInt64 = 0
    private var figures: Timer?
    private var drawing: Timer?
    private var isStale = false
    private var sources: [Source] = []
    private var calls: [Int: Slot] = [:]
    private var nextCall = 0
    /// The application that the user is asked about.
    private var question: String?
    private var bytes: [UInt8] = []
    private var lastWords: String?

    private var loop: EventLoop { subscription.loop }

    init(_ client: Client, by order: Top.Order) throws {
        self.client = client
        frame.order = order
        subscription = try Subscription(client)
    }

    /// - Returns: the exit status.
    func run() throws -> Int32 {
        subscription.warn = { [unowned self] in say($0, last: true) }
        drawing = try loop.timer { [unowned self] in draw() }
        figures = try loop.timer { [unowned self] in measure() }
        sources = [
            try loop.onSignal(SIGWINCH) { [unowned self] in draw() },
            try loop.watch(STDIN_FILENO) { [unowned self] _ in read() },
        ]
        Screen.begin()
        let code: Int32
        do {
            defer { Screen.end() }
            code = try subscription.run { [unowned self] _ in
                try list()
            } heard: { [unowned self] message in
                // A signal that is not as documented says nothing.
                try? hear(message)
                try? message.rewind()
            }
        }
        if code != 0, let lastWords { Terminal.warn(lastWords) }
        return code
    }

    // MARK: What is shown

    private func list() throws {
        let rows = try client.applications()
        for path in Set(frame.rows.keys).subtracting(rows.map(\.path)) { remove(path) }
        for row in rows { add(row.path, row.id, row.pid, row.state) }
        frame.notice = nil
        measure()
    }

    private func add(_ path: String, _ id: String, _ pid: UInt32, _ state: String) {
        let pid = Int32(clamping: pid)
        frame.rows[
            path, default: TopFrame.Row(id: id, pid: pid, state: state, meter: try? ApplicationMeter(pid))
        ].state = state
    }

    private func remove(_ path: String) {
        if let inhibitor = frame.rows[path]?.inhibitor { close(inhibitor) }
        frame.remove(path)
    }

    private func hear(_ message: borrowing Message) throws {
        guard message.interface == BusNames.manager,
            let signal = message.member.flatMap(ManagerSignal.init(rawValue:))
        else { return }
        if signal == .resync { return try list() }
        guard signal.arguments.first?.type == "o" else { return }
        let path = try message.readObjectPath()
        let (id, pid) = (try message.readString(), try message.readUInt32())
        switch signal {
        case .applicationAdded: add(path, id, pid, LifeCycleState.notRunning.rawValue)
        case .stateChanged:
            _ = try message.readString()
            add(path, id, pid, try message.readString())
        case .applicationRemoved: remove(path)
        default: return
        }
        frame.move(0)
        drawSoon()
    }

    /// Every two seconds.
    private func measure() {
        let now = EventLoop.clock
        let applications = Set(frame.rows.values.map(\.pid))
        for path in frame.rows.keys {
            let before = frame.rows[path]?.figures
            let figures = frame.rows[path]?.meter?.read(among: applications)
            frame.rows[path]?.figures = figures
            guard let figures, let before, before.counter == figures.counter, now > measured else { continue }
            let used = figures.processor > before.processor ? figures.processor - before.processor : 0
            frame.rows[path]?.share = Double(used) / Double(now - measured)
        }
        measured = now
        self.figures?.arm(at: now + 2_000_000)
        frame.move(0)
        draw()
    }

    /// Signals that come together are shown together.
    private func drawSoon() {
        if isStale { return }
        isStale = true
        drawing?.arm(at: EventLoop.clock + 30_000)
    }

    private func draw() {
        isStale = false
        let size = Screen.size
        Screen.draw(frame.lines(width: size.width, height: size.height))
    }

    private func say(_ sentence: String, last: Bool = false) {
        frame.notice = sentence
        if last { lastWords = sentence }
        drawSoon()
    }

    // MARK: Keys

    private func read() {
        guard let keys = Screen.keys(after: &bytes) else { return subscription.end(0) }
        for key in keys { take(key) }
        draw()
    }

    private func take(_ key: Screen.Key) {
        frame.notice = nil
        if let path = question {
            question = nil
            if key == .letter("y") { call(.terminate, path) { try $0.append(false) } }
            return
        }
        switch key {
        case .up: frame.move(-1)
        case .down: frame.move(1)
        case .pageUp: frame.move(-max(1, Screen.size.height - 3))
        case .pageDown: frame.move(max(1, Screen.size.height - 3))
        case .first: frame.move(-frame.rows.count)
        case .last: frame.move(frame.rows.count)
        case .letter("t"): frame.order = .state
        case .letter("m"): frame.order = .memory
        case .letter("p"): frame.order = .processor
        case .letter("q"): subscription.end(0)
        case .letter(let letter):
            guard let path = frame.chosen, let row = frame.rows[path] else { return }
            switch letter {
            case "s": call(.suspend, path)
            case "r": call(.resume, path)
            case "k": keep(path)
            case "e":
                question = path
                frame.notice = "End \(row.id)? y: yes, any other key: no"
            default: break
            }
        }
    }

    private func keep(_ path: String) {
        if let inhibitor = frame.rows[path]?.inhibitor {
            close(inhibitor)
            frame.rows[path]?.inhibitor = nil
            return
        }
        call(.inhibit, path) {
            try $0.append("appstatectl top")
            try $0.append("kept by key")
        } done: { [unowned self] reply in
            guard let row = frame.rows[path], let inhibitor = try? reply.readDescriptor() else { return }
            if let other = row.inhibitor { close(other) }
            frame.rows[path]?.inhibitor = inhibitor
        }
    }

    /// The screen does not wait for the answer.
    private func call(
        _ method: ApplicationMethod, _ path: String, _ write: (borrowing Message) throws -> Void = { _ in },
        done: @escaping (borrowing Message) -> Void = { _ in }
    ) {
        let number = nextCall
        nextCall += 1
        do {
            let message = try client.bus.newCall(
                destination: BusNames.service, path: path, interface: BusNames.application,
                member: method.rawValue)
            try write(message)
            calls[number] = try client.bus.callAsync(message) { [unowned self] reply in
                calls[number] = nil
                if let error = reply.error { say("\(error.message)") } else { done(reply) }
                drawSoon()
            }
        } catch {
            say("\(error)")
        }
    }
}
