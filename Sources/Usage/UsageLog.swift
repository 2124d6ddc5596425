public import AppStateContract
import Linux

/// What is recorded of the user's applications: the content of `$XDG_STATE_HOME/appstate/usage`.
///
/// The file is text, and each of its lines is complete in itself. Times are seconds of CLOCK_REALTIME.
///
///     = TIME                                  a recording begins; nothing of before is known
///     + N ID                                  N means an application with this id from here on
///     SECONDS N STATE PROCESSOR FROZEN SWAPPED RECLAIMED
///     SECONDS                                 nothing has changed, and the recorder lives
///
/// SECONDS is the time since the line before. STATE is the first letter of the state. PROCESSOR and FROZEN are the
/// milliseconds that the application has run and was frozen since its line before, SWAPPED the KiB that it has in swap
/// now, RECLAIMED the KiB that its end has freed. Zeros at the end of a line are left out. The last line is ignored if
/// it is cut off.
///
/// If there is no line for longer than `longestGap`, the machine slept or nobody recorded: the time until the next line
/// counts for nothing.
public struct UsageLog: Equatable, Sendable {
    /// An application at one moment.
    public struct Event: Equatable, Sendable {
        public var time: Int64
        /// The number of the application.
        public let application: Int
        /// `notRunning`: it has ended.
        public var state: LifeCycleState
        /// Milliseconds since its event before.
        public var processor: Int64 = 0
        /// Milliseconds since its event before; 0: this is not known.
        public var frozen: Int64 = 0
        /// KiB.
        public var swapped: Int64 = 0
        /// KiB.
        public var reclaimed: Int64 = 0

        public init(time: Int64, application: Int, state: LifeCycleState) {
            (self.time, self.application, self.state) = (time, application, state)
        }
    }

    /// A time in which everything is known.
    public struct Run: Equatable, Sendable {
        public var start: Int64
        public var end: Int64
        public var names: [Int: String] = [:]
        /// In the order of time. The first one of an application says in which state it was found.
        public var events: [Event] = []

        public init(start: Int64) { (self.start, end) = (start, start) }
    }

    public var runs: [Run] = []

    /// The most bytes of the file.
    public static let limit = 1 << 20
    /// What is older is deleted, in seconds.
    public static let longestAge: Int64 = 7 * 86_400
    /// In seconds. The recorder writes a line at least every five minutes.
    public static let longestGap: Int64 = 600
    static let pause: Int64 = 300

    /// Where the file is (XDG Base Directory Specification); nil: the user has no directory for it.
    public static var path: String? {
        let own = Environment["XDG_STATE_HOME"].flatMap { $0.hasPrefix("/") ? $0 : nil }
        return (own ?? Environment["HOME"].map { "\($0)/.local/state" }).map { "\($0)/appstate/usage" }
    }

    public init() {}

    // MARK: Lines

    /// A line of the file.
    public enum Line: Equatable, Sendable {
        case begin(Int64)
        case name(Int, String)
        /// The event's time is ignored.
        case event(after: Int64, Event)
        case pass(Int64)

        /// The line with its end.
        public var text: String {
            switch self {
            case .begin(let time): return "= \(time)\n"
            case .name(let number, let id): return "+ \(number) \(id)\n"
            case .pass(let seconds): return "\(seconds)\n"
            case .event(let seconds, let event):
                var figures = [event.processor, event.frozen, event.swapped, event.reclaimed]
                while figures.last == 0 { figures.removeLast() }
                let letter = event.state.rawValue.prefix(1)
                return "\(seconds) \(event.application) \(letter)" + figures.map { " \($0)" }.joined() + "\n"
            }
        }

        /// nil: it is no such line.
        init?(_ bytes: ArraySlice<UInt8>) {
            let words = bytes.split(separator: UInt8(ascii: " ")).map { String(decoding: $0, as: UTF8.self) }
            if words.count == 2, words[0] == "=", let time = Int64(words[1]) {
                self = .begin(time)
            } else if words.count == 3, words[0] == "+", let number = Int(words[1]) {
                self = .name(number, words[2])
            } else if let first = words.first, let seconds = Int64(first), seconds >= 0 {
                guard words.count > 1 else {
                    self = .pass(seconds)
                    return
                }
                let figures: [Int64] = words.dropFirst(3).map { Int64($0) ?? 0 } + [0, 0, 0, 0]
                guard words.count > 2, let number = Int(words[1]),
                    let state = LifeCycleState.allCases.first(where: { $0.rawValue.hasPrefix(words[2]) })
                else { return nil }
                var event = Event(time: 0, application: number, state: state)
                event.processor = figures[0]
                event.frozen = figures[1]
                event.swapped = figures[2]
                event.reclaimed = figures[3]
                self = .event(after: seconds, event)
            } else {
                return nil
            }
        }
    }

    // MARK: Reading and writing

    /// Reads a file. Lines that are none are skipped.
    public init(_ bytes: [UInt8]) {
        var states: [Int: LifeCycleState] = [:]
        let newline = UInt8(ascii: "\n")
        let whole = bytes[..<(bytes.lastIndex(of: newline) ?? bytes.startIndex)]
        for line in whole.split(separator: newline).compactMap({ Line($0) }) {
            switch line {
            case .begin(let time):
                states = [:]
                runs.append(Run(start: time))
            case .name(let number, let id):
                guard !runs.isEmpty else { break }
                runs[runs.count - 1].names[number] = id
            case .pass(let seconds): advance(seconds, &states)
            case .event(let seconds, var event):
                guard !runs.isEmpty, runs[runs.count - 1].names[event.application] != nil else { break }
                advance(seconds, &states)
                event.time = runs[runs.count - 1].end
                states[event.application] = event.state
                runs[runs.count - 1].events.append(event)
            }
        }
    }

    private mutating func advance(_ seconds: Int64, _ states: inout [Int: LifeCycleState]) {
        guard let last = runs.last else { return }
        guard seconds > Self.longestGap else {
            runs[runs.count - 1].end += seconds
            return
        }
        var next = Run(start: last.end + seconds)
        next.names = last.names
        next.events = Self.found(states, at: next.start)
        runs.append(next)
    }

    fileprivate static func found(_ states: [Int: LifeCycleState], at time: Int64) -> [Event] {
        states.filter { $0.value != .notRunning }.sorted { $0.key < $1.key }
            .map { Event(time: time, application: $0.key, state: $0.value) }
    }

    /// The content of the file.
    public var text: String {
        var text = ""
        for run in runs where run.end > run.start {
            text += Line.begin(run.start).text
            let used = Set(run.events.map(\.application))
            for (number, id) in run.names.sorted(by: { $0.key < $1.key }) where used.contains(number) {
                text += Line.name(number, id).text
            }
            var now = run.start
            func pass(to time: Int64) {
                while time - now > Self.longestGap {
                    text += Line.pass(Self.pause).text
                    now += Self.pause
                }
            }
            for event in run.events {
                pass(to: event.time)
                text += Line.event(after: event.time - now, event).text
                now = event.time
            }
            pass(to: run.end)
            text += Line.pass(run.end - now).text
        }
        return text
    }

    // MARK: Limits

    /// Without what is older, and as large as fits.
    public func bounded(since time: Int64, bytes: Int) -> UsageLog {
        var log = self
        log.runs = runs.compactMap { $0.part(from: time) }
        var span: Int64 = 30
        while log.text.utf8.count > bytes {
            log.runs = log.runs.map { $0.merged(shorterThan: span) }
            span *= 2
            // The names alone do not fit.
            if span > Self.longestAge { log.runs.removeFirst() }
        }
        return log
    }
}

extension UsageLog.Run {
    /// What comes after a moment; nil: nothing.
    fileprivate func part(from time: Int64) -> Self? {
        if start >= time { return self }
        guard end > time else { return nil }
        var part = UsageLog.Run(start: time)
        (part.end, part.names) = (end, names)
        var states: [Int: LifeCycleState] = [:]
        for event in events.prefix(while: { $0.time < time }) { states[event.application] = event.state }
        part.events = UsageLog.found(states, at: time) + events.drop { $0.time < time }
        return part
    }

    /// A state that lasted for less than this many seconds counts as part of the one before it. Sums are kept, but for
    /// the number of changes; what was used in such a state counts for the one before it, too.
    fileprivate func merged(shorterThan span: Int64) -> Self {
        var merged = self
        // The places of what is kept, of each application.
        var kept: [Int: [Int]] = [:]
        var events: [UsageLog.Event?] = []
        for var event in self.events {
            var places = kept[event.application] ?? []
            while places.count > 1, let place = places.last, let before = events[place],
                before.state != .notRunning,
                event.time - before.time < span || events[places[places.count - 2]]?.state == before.state
            {
                event.processor += before.processor
                event.frozen += before.frozen
                event.reclaimed += before.reclaimed
                events[place] = nil
                places.removeLast()
            }
            kept[event.application] = places + [events.count]
            events.append(event)
        }
        merged.events = events.compactMap(\.self)
        return merged
    }
}
