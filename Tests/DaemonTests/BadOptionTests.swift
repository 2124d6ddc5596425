import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// Invalid options and arguments give InvalidArgs, which names them, and change nothing.
@Suite("Options that are refused", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct BadOptionTests {
    /// Values of a wrong type for each option, and unknown values for the options that are a choice.
    private var wrong: [(RegisterOption, Variant)] {
        [
            (.delegate, .string("true")), (.delegate, .uint32(1)), (.delegate, .variant(.bool(true))),
            (.launchMode, .bool(true)), (.launchMode, .string("sideways")), (.launchMode, .string("")),
            (.suspension, .uint32(0)), (.suspension, .string("Automatic")),
            (.reclaimable, .string("yes")), (.reclaimable, .int32(1)),
            (.backgroundModes, .string("audio")),
            (.backgroundModes, .array("v", [.variant(.string("audio"))])),
            (.backgroundModes, .array("u", [])),
            (.launchOptions, .string("")), (.launchOptions, .array("{ss}", [])),
            (.launchOptions, .strings([])),
            (.adopted, .string("true")), (.adopted, .uint32(1)),
        ]
    }

    @Test("an option with a wrong type or an unknown value gives InvalidArgs, which names the option")
    func wrongTypes() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        #expect(Set(wrong.map(\.0)) == Set(RegisterOption.allCases))
        for (option, value) in wrong {
            try stage.refuses(.invalidArgs, "\(option.rawValue)=\(value)") {
                do {
                    try stage.client.register("org.example.App", child.pid, [(option.rawValue, value)])
                } catch let failure as BusFailure {
                    #expect(failure.message?.contains(option.rawValue) == true, "\(failure)")
                    throw failure
                }
            }
        }
    }

    @Test("an invalid entry of a rule is refused with an error that names its key, and changes nothing")
    func rules() throws {
        let stage = try Stage()
        func configure(_ entries: [(String, Variant)]) throws {
            try stage.client.call(stage.path, BusNames.application, "Configure") {
                try $0.appendDictionary(entries)
            }
        }
        try configure([("rule", .string("mine")), ("suspension", .string("never"))])
        let wrong: [(RuleKey, Variant)] = [
            (.rule, .bool(true)), (.suspension, .string("often")), (.suspension, .uint32(0)),
            (.reclaimable, .string("yes")), (.backgroundGrace, .uint32(5)), (.backgroundGrace, .string("5")),
            (.keepWhile, .string("audio")), (.keepWhile, .strings(["Audio"])), (.keepWhile, .strings([""])),
            (.drainEvery, .string("5")), (.drainFor, .uint32(1)),
            (.drainFor, .uint64(.max)),
            (.suspendWhen, .string("active")), (.unsavedMark, .string("yes")),
            (.relaunchReclaimed, .string("yes")),
            (.backgroundCPUQuota, .uint32(0)),
            (.backgroundCPUQuota, .string("20%")), (.backgroundCPUQuota, .uint32(1_000_001)),
        ]
        #expect(Set(wrong.map(\.0)) == Set(RuleKey.allCases))
        for (key, value) in wrong {
            try stage.refuses(.invalidArgs, "\(key.rawValue)=\(value)") {
                do {
                    try configure([(key.rawValue, value)])
                } catch let failure as BusFailure {
                    #expect(failure.message?.contains(key.rawValue) == true, "\(failure)")
                    throw failure
                }
            }
        }
        try stage.refuses(.invalidArgs, "unknown") { try configure([("colour", .bool(true))]) }
        try stage.refuses(.limitsExceeded, "a long name") {
            try configure([("rule", .string(String(repeating: "x", count: 256)))])
        }
        try stage.refuses(.limitsExceeded, "many words") {
            try configure([("keep-while", .strings(Array(repeating: "x", count: 65)))])
        }
        #expect(try stage.client.explain(stage.path)["rule"] == .string("mine"))
        #expect(try stage.client.explain(stage.path)["suspension"] == .string("never"))
    }

    @Test(
        "an unknown option gives InvalidArgs, which names it",
        arguments: ["colour", "", "Delegate", "launch_mode"])
    func unknown(_ key: String) throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        try stage.refuses(.invalidArgs, key) {
            do {
                try stage.client.register(
                    "org.example.App", child.pid, [("reclaimable", .bool(true)), (key, .bool(true))])
            } catch let failure as BusFailure {
                #expect(failure.message?.contains("\"\(key)\"") == true, "\(failure)")
                throw failure
            }
        }
    }

    @Test("too large launch options, too many modes and too long a mode give LimitsExceeded")
    func tooMuch() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        let long = String(repeating: "x", count: 1_025)
        let cases: [(String, Variant)] = [
            ("launch-options", .dictionary(["payload": .bytes([UInt8](repeating: 0, count: 70_000))])),
            ("background-modes", .strings((0...64).map { "mode\($0)" })),
            ("background-modes", .strings([long])),
        ]
        for (key, value) in cases {
            try stage.refuses(.limitsExceeded, key) {
                try stage.client.register("org.example.App", child.pid, [(key, value)])
            }
        }
    }
}
