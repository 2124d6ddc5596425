import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing
import Usage

@testable import appstatectl

/// What is recorded of applications, its sums, and the picture of a day.
@Suite("Usage")
struct UsageTests {
    private static let start: Int64 = 1_800_000_000

    private func log(_ text: String) -> UsageLog { UsageLog(Array(text.utf8)) }

    @Test("a recording is read as it was written; a cut last line and lines of another kind are skipped")
    func format() {
        let text =
            "= 1000\n+ 0 org.example.A\n5 0 i\n10 0 a 20\n360 0 s 1500 0 64\n45 0 n 0 44000 0 2048\n0\n"
        #expect(log(text).text == text)
        #expect(log(text + "nonsense here\n\n7 9 a\n-3\n12 0 x\n9 0").text == text)
        #expect(log("").runs.isEmpty)
    }

    @Test("times, processor time and freezes are added up, and the estimate uses the rate in the background")
    func sums() throws {
        let log = log(
            "= 1000\n+ 0 org.example.A\n0 0 b\n100 0 s 5000\n60 0 b 1 58000 64\n20 0 s 500\n40 0 a 0 0 128\n"
                + "10 0 n 4000 0 0 2048\n")
        let sum = try #require(log.sums(from: 0, to: 2_000).first)
        #expect(sum.seconds == [.background: 120, .suspended: 100, .active: 10])
        #expect(sum.processor == [.background: 5_500, .suspended: 1, .active: 4_000])
        #expect(sum.freezes == 2 && sum.swapped == 128 && sum.reclaimed == 2_048)
        // The kernel has counted the first; of the second only the state is known.
        #expect(sum.counted == 58_000 && sum.frozen == 98_000)
        #expect(sum.saved == 4_491)
        let part = try #require(log.sums(from: 1_150, to: 1_170).first)
        #expect(part.seconds == [.suspended: 10, .background: 10] && part.freezes == 0)
    }

    @Test("a time without a line counts for nothing, and what is suspended after it was not suspended again")
    func gap() throws {
        let sum = try #require(
            log("= 1000\n+ 0 A\n0 0 b\n10 0 s\n100\n5000\n50\n").sums(from: 0, to: 99_000).first)
        #expect(sum.seconds == [.background: 10, .suspended: 150] && sum.freezes == 1)
    }

    /// A week of 200 applications, with this many changes of the focus in eight hours of each day, as the recorder
    /// writes it.
    private static func week(switches: Int) -> UsageLog {
        var random = Dice(seed: 47)
        var events: [UsageLog.Event] = []
        func add(_ time: Int64, _ number: Int, _ state: LifeCycleState, _ used: Int64) {
            var event = UsageLog.Event(time: time, application: number, state: state)
            (event.processor, event.swapped) = (used, state == .suspended ? 0 : random.below(90_000))
            if state == .active { event.frozen = random.below(3_000_000) }
            events.append(event)
        }
        for day in 0..<7 {
            let morning = start + Int64(day) * 86_400 + 9 * 3_600
            var front = 0
            for _ in 0..<switches {
                let time = morning + random.below(8 * 3_600)
                // Most of them go to and fro between a few.
                let next = random.below(10) < 8 ? Int(random.below(12)) : Int(random.below(200))
                add(time, front, .background, random.below(60_000))
                add(time + 30, front, .suspended, random.below(9_000))
                add(time, next, .active, random.below(90))
                front = next
            }
            // What may not be suspended has a line each hour.
            for number in 180..<200 {
                for hour in 0..<24 {
                    add(start + Int64(day * 24 + hour) * 3_600, number, .background, random.below(900_000))
                }
            }
        }
        var run = UsageLog.Run(start: start)
        run.end = start + 7 * 86_400
        for number in 0..<200 { run.names[number] = "org.example.Application\(number)" }
        run.events = events.sorted { ($0.time, $0.application) < ($1.time, $1.application) }
        var log = UsageLog()
        log.runs = [run]
        return log
    }

    @Test("a week of 200 applications fits, and of one that does not, only short states are lost")
    func week() {
        let usual = Self.week(switches: 1_000)
        let size = usual.text.utf8.count
        #expect(size < UsageLog.limit, "\(size) bytes")
        #expect(UsageLog(Array(usual.text.utf8)) == usual)

        let many = Self.week(switches: 6_000)
        let kept = many.bounded(since: Self.start, bytes: UsageLog.limit / 2)
        #expect(many.text.utf8.count > UsageLog.limit && kept.text.utf8.count <= UsageLog.limit / 2)
        func used(_ log: UsageLog) -> [Int64] {
            log.sums(from: 0, to: .max).map { $0.allProcessor + $0.seconds.values.reduce(0, +) * 1_000_000 }
        }
        #expect(used(kept) == used(many))
        let half = usual.bounded(since: Self.start + 3 * 86_400, bytes: UsageLog.limit)
        #expect(
            half.runs.first?.start == Self.start + 3 * 86_400 && half.runs.first?.end == usual.runs.first?.end
        )
    }

    @Test(
        "the timeline has a row for each application, a stroke for each time, and colours for light and dark")
    func chart() throws {
        let day = Self.start
        let spans = log("= \(day)\n+ 0 A\n+ 1 B\n0 0 a\n300 1 b\n300 0 s\n300 1 n\n600\n").spans
        let chart = Chart(spans: spans, from: day, to: day + 1_200)
        #expect(chart.rows.map(\.id) == ["A", "B"])
        #expect(chart.rows[0].seconds == [.active: 600, .suspended: 600] as [LifeCycleState: Int64])
        #expect(chart.rows[0].strokes == [.active: "M240 0h600", .suspended: "M840 0h600"])
        #expect(chart.rows[1].strokes == [.background: "M540 0h600"])
        #expect(chart.text.contains("@media (prefers-color-scheme:dark)"))
        #expect(chart.text.contains("<title>A: active 10m00, suspended 10m00</title>"))
        #expect(Chart(spans: spans, from: day + 1_800, to: day + 3_600).rows.isEmpty)
        #expect(throws: (any Error).self) { try Timeline.bounds(of: "2026-13-01") }
        #expect(try Timeline.bounds(of: "2026-11-28").1 > Timeline.bounds(of: "2026-11-28").0)
    }

    @Test("a picture replaces a file, but no directory and nothing that is not a regular file")
    func replaced() throws {
        let scratch = try Scratch()
        mkfifo("\(scratch.path)/pipe", 0o600)
        symlink("nothing", "\(scratch.path)/dangling")
        symlink("new/picture", "\(scratch.path)/link")
        for (name, what) in [
            ("", "a directory"), ("/new/", "a directory"), ("/pipe", "not a regular file"),
            ("/dangling", "not a regular file"),
        ] {
            do {
                try UserFile.write("", to: scratch.path + name)
                Issue.record("\(name) was replaced")
            } catch let failure as Failure {
                #expect(failure.sentence.hasSuffix("cannot be written: it is \(what)"))
            }
        }
        try UserFile.write("picture", to: "\(scratch.path)/new/picture")
        try UserFile.write("another", to: "\(scratch.path)/link")
        #expect(try UserFile.text(of: "\(scratch.path)/new/picture") == "another")
    }
}

/// The screen of `top`.
@Suite("appstatectl top")
struct TopFrameTests {
    private func frame() -> TopFrame {
        var frame = TopFrame()
        for (path, id, state, share) in [
            ("/1", "org.example.Suspended", "suspended", 0.0), ("/2", "org.example.Active", "active", 0.25),
            ("/3", "org.example.Background", "background", 1.5),
        ] { frame.rows[path] = TopFrame.Row(id: id, pid: 1, state: state, share: share) }
        return frame
    }

    @Test("rows are sorted, the choice stays with its application, and goes to the next when that ends")
    func order() {
        var frame = frame()
        #expect(frame.paths == ["/2", "/3", "/1"])
        frame.order = .processor
        #expect(frame.paths == ["/3", "/2", "/1"])
        frame.move(1)
        #expect(frame.chosen == "/2")
        frame.order = .state
        frame.move(0)
        #expect(frame.chosen == "/2")
        frame.move(9)
        #expect(frame.chosen == "/1")
        frame.move(-1)
        frame.remove("/3")
        #expect(frame.chosen == "/1")
        frame.remove("/1")
        #expect(frame.chosen == "/2")
    }

    @Test("every size of the screen is filled exactly, and the chosen row is on it")
    func sizes() {
        var frame = frame()
        for number in 10..<60 {
            frame.rows["/\(number)"] = TopFrame.Row(id: "many.\(number)", pid: 1, state: "background")
        }
        frame.move(0)
        frame.move(99)
        for (width, height) in [(40, 10), (80, 24), (200, 70), (7, 3), (1, 1)] {
            let lines = frame.lines(width: width, height: height)
            #expect(lines.count == height && lines.allSatisfy { $0.width <= width })
            if width >= 40 { #expect(lines.contains { $0.text.contains("> org.ex") }) }
        }
    }

    @Test("keys are told apart, and the rest of one that arrives in parts is awaited")
    func keys() {
        var bytes = Array("s\u{1B}[A\u{1B}OB\u{1B}[5~\u{1B}[".utf8)
        #expect(Screen.keys(in: &bytes) == [.letter("s"), .up, .down, .pageUp])
        bytes += Array("Bq".utf8)
        #expect(Screen.keys(in: &bytes) == [.down, .letter("q")] && bytes.isEmpty)
    }
}

private struct Dice {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func below(_ limit: Int64) -> Int64 {
        state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        return Int64(state >> 33) % limit
    }
}
