import AppStateBus
import Testing

@testable import appstatectl

/// The sentence that `explain` begins with, from what the daemon explains.
@Suite("appstatectl explain")
struct ConclusionTests {
    /// The sentence for an application in the background that policy may suspend, with these facts changed.
    private func sentence(_ changes: [(String, Variant)]) -> String {
        let usual: [(key: String, value: Variant)] = [
            ("state", .string("background")), ("launching", .bool(false)), ("terminating", .bool(false)),
            ("stopped", .bool(false)), ("focused", .bool(false)),
            ("windows", .strings(["1 of :1.5 minimized"])),
            ("suspension", .string("automatic")), ("holds", Self.holds([])),
            ("objections", .strings([])), ("would-suspend", .bool(false)),
        ]
        let entries = usual + changes.map { (key: $0.0, value: $0.1) }
        return Conclusion(entries, at: 1_000_000, nameOfUser: { $0 == 0 ? "root" : "user\($0)" }).sentence
    }

    private static func holds(_ holds: [(String, String)]) -> Variant {
        .array("(ss)", holds.map { .structure([.string($0.0), .string($0.1)]) })
    }

    @Test("of a suspended application it says who holds it, of another one why it runs")
    func sentences() {
        let suspended: [(String, Variant)] = [("state", .string("suspended")), ("stopped", .bool(true))]
        let held = [("holds", Self.holds([("policy", "appstated")]))]
        let cases: [([(String, Variant)], String)] = [
            (
                suspended + [("holds", Self.holds([("request", "uid:7"), ("signal", "pid 12")]))],
                "suspended at the request of user7 and by a signal of process 12"
            ),
            (
                suspended + [("holds", Self.holds([("toggle", "uid:7")]))],
                "suspended at the request of user7, until it gets the focus"
            ),
            (
                suspended + [("holds", Self.holds([("signal", "cgroup /a")]))],
                "suspended because another process has frozen cgroup /a"
            ),
            (
                held + [("stop-failures", .strings(["kill 5: EPERM"]))],
                "to be suspended by policy, but cannot be stopped: kill 5: EPERM"
            ),
            (
                [("suspension", .string("manual"))],
                "not suspended: Suspension=manual, so policy never suspends it"
            ),
            ([("state", .string("active"))], "not suspended: it has the focus"),
            (
                [
                    ("suspension-deadline", .uint64(1_250_000)),
                    ("objections", .strings(["terminal-job: make"])),
                ],
                "not suspended: policy suspends it in 250 ms, unless this still speaks against it: "
                    + "terminal-job: make"
            ),
            (
                [("would-suspend", .bool(true))],
                "not suspended: policy would have suspended it, but Mode=observe"
            ),
            (
                [
                    ("objections", .strings(["reported audio"]))
                ], "not suspended: something keeps it running: reported audio"
            ),
        ]
        for (changes, reason) in cases { #expect(sentence(changes) == "It is \(reason).") }
    }
}
