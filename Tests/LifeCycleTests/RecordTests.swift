import AppStateContract
import Testing

@testable import LifeCycle

/// Records read back as written, whatever texts they hold, and a damaged record is never taken for a whole one.
@Suite("Records")
struct RecordTests {
    /// Texts that a grammar of characters, words or lines would lose: blanks, combining marks, joiners, line ends of
    /// all kinds, and text that looks like the record's own syntax.
    static let nasty = [
        "", " ", "  ", "a b", " a", "a ", "\n", "\r\n", "\t", "\\", "\\n", "%", "%20", "%zz", "=", "end 1",
        "\u{7f}",
        "\u{301}", "a\u{301}", "\\\u{301}", "/\u{301}", "=\u{301}", " \u{301}", "%\u{301}", "\n\u{301}",
        "\u{200D}",
        "\\\u{200D}", "\u{FEFF}", "e\u{301}é", "\u{1F468}\u{200D}\u{1F469}", "\u{2028}", "\u{85}",
        "\u{0600} x",
        String(repeating: "x", count: 1_024), String(repeating: "\u{301}", count: 512),
    ]

    private static func settings() -> Settings {
        var settings = Settings()
        settings.backgroundTaskMax = 1_000_000_000
        return settings
    }

    /// An application with a large record that contains this text in several places.
    private func rich(_ text: String) throws -> Stage {
        var stage = try Stage.launched(Self.settings()) { $0.backgroundModes = [text, "x", text] }
        try stage.perform(.beginBackgroundTask(stage.number, name: text, by: Stage.delegate))
        try stage.perform(.suspend(stage.number, holder: text))
        stage.settle()
        stage.handle(.stopped(stage.number, holder: text))
        var report = WindowReport(number: 7, process: stage.reported)
        report.title = text
        report.appID = text
        try stage.perform(.updateWindow(report, stage.reporter))
        return stage
    }

    @Test(
        "texts from clients are the same after writing and reading a record", arguments: RecordTests.nasty)
    func texts(_ text: String) throws {
        let stage = try rich(text)
        let record = try #require(stage.machine.record(of: stage.number))
        let reading = RecordFile.read(RecordFile.bytes(record))
        #expect(reading.isWhole)
        // Byte by byte: Swift considers texts equal that look the same.
        #expect(reading.record.lines.map(Self.bytes) == record.lines.map(Self.bytes))
        var next = Machine(settings: Self.settings())
        _ = try next.restore(reading.record)
        let application = try #require(next.applications[stage.number])
        #expect(
            application.requestedModes.map { Array($0.utf8) } == [text, "x", text].map { Array($0.utf8) })
        #expect(application.tasks.map { Array($0.name.utf8) } == [Array(text.utf8)])
        #expect(next.record(of: stage.number) == record)
    }

    private static func bytes(_ line: Record.Line) -> [[UInt8]] {
        ([line.key] + line.fields).map { Array($0.utf8) }
    }

    @Test("a record that was cut is not whole, and what is left of it was in the original")
    func cut() throws {
        // A line that ends like the last one.
        let stage = try rich("a \\\u{301} % end")
        var record = try #require(stage.machine.record(of: stage.number))
        record.add("none", [])
        record.add("empty", "")
        record.add("two", "", "")
        let bytes = RecordFile.bytes(record)
        let whole = RecordFile.read(bytes)
        #expect(whole.isWhole && whole.record == record)
        for length in bytes.indices {
            let reading = RecordFile.read(Array(bytes.prefix(length)))
            #expect(!reading.isWhole, "\(length) bytes")
            #expect(reading.record.lines.elementsEqual(record.lines.prefix(reading.record.lines.count)))
        }
        #expect(!RecordFile.read(bytes + [0x0A]).isWhole)
        #expect(!RecordFile.read(Array("a=%zz\nend\n".utf8)).isWhole)
        #expect(!RecordFile.read([0xFF, 0x0A] + bytes).isWhole)
    }

    @Test("the file of a record is text")
    func text() {
        let record = Record([Record.Line("held", "frozen", "/a b", "7"), Record.Line("hold", "policy", "")])
        #expect(
            RecordFile.bytes(record) == Array("held=frozen /a%20b 7\nhold=policy \nend\n".utf8))
        let empty = RecordFile.read(Array("end\n".utf8))
        #expect(empty.isWhole && empty.record == Record())
    }

    @Test("a reporter is lost only to the session that it reported for, also after a restart")
    func lostReporter() throws {
        var stage = try Stage.launched()
        let other = SessionKey.login("c7")
        let reporter = ReporterIdentity(connection: ":1.9", user: Stage.user, session: other)
        try stage.perform(.updateWindow(WindowReport(number: 7, process: stage.reported), reporter))
        stage.handle(.disconnected(":1.9"))
        #expect(stage.machine.sessions[other]?.reporting != .present)
        let record = try #require(stage.machine.record(of: stage.number))
        var next = Machine()
        _ = try next.restore(record)
        #expect(next.sessions[other]?.reporting == .lost)
        #expect(next.sessions[.user(Stage.user)] == nil)
        #expect(next.record(of: stage.number) == record)
    }

    @Test("application numbers start over after the greatest one and skip those in use")
    func numbers() throws {
        var machine = Machine()
        func register(_ pid: Int32) throws -> UInt32 {
            let id = try #require(ApplicationID("org.example.Editor"))
            let registration = Registration(
                id: id, process: ProcessID(pid: pid, startTime: 7), user: 1000, session: .user(1000))
            guard case .application(let number) = try machine.perform(.register(registration), at: 1).answer
            else {
                return 0
            }
            return number.rawValue
        }
        #expect(try register(1) == 1)
        machine.continueNumbers(after: .max - 1)
        #expect(try register(2) == .max)
        #expect(try register(3) == 2)
        machine.continueNumbers(after: .max)
        #expect(try register(4) == 3)
        #expect(machine.lastNumber == 3)
    }
}
