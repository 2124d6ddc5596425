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
            ("suspension", .string("automatic")), ("holds", Self.holds([])), ("exemptions", .strings([])),
            ("objections", .strings([])), ("would-suspend", .bool(false)),
        ]
        let entries = usual + changes.map { (key: $0.0, value: $0.1) }
        return Conclusion(entries, at: 1_000_000, nameOfUser: { $0 == 0 ? "root" : "user\($0)" }).sentence
    }

    private static func holds(_ holds: [(String, String)]) -> Variant {
        .array("(ss)", holds.map { .structure([.string($0.0), .string($0.1)]) })
    }

    /// The sentence for a suspended application with these holds.
    private func suspended(_ holds: [(String, String)]) -> String {
        sentence([("state", .string("suspended")), ("stopped", .bool(true)), ("holds", Self.holds(holds))])
    }

    @Test("of a suspended application it says who holds it")
    func holders() {
        #expect(suspended([("policy", "appstated")]) == "It is suspended by policy.")
        #expect(suspended([("request", "uid:0")]) == "It is suspended at the request of root.")
        #expect(
            suspended([("request", "uid:7"), ("signal", "pid 12")])
                == "It is suspended at the request of user7 and by a signal of process 12.")
        #expect(
            suspended([("toggle", "uid:7")])
                == "It is suspended at the request of user7, until it gets the focus.")
        #expect(suspended([("signal", "")]) == "It is suspended by a signal of another process.")
        #expect(
            suspended([("signal", "cgroup /a")])
                == "It is suspended because another process has frozen cgroup /a.")
        #expect(suspended([("later", "x")]) == "It is suspended by later x.")
        #expect(suspended([]) == "It is suspended, and is about to run.")
    }

    @Test(
        "of an application that is held and runs it says that it is about to be suspended, or why it cannot be"
    )
    func pending() {
        let held: [(String, Variant)] = [("holds", Self.holds([("policy", "appstated")]))]
        #expect(sentence(held) == "It is about to be suspended by policy.")
        #expect(
            sentence(held + [("stop-failures", .strings(["kill 5: EPERM"]))])
                == "It is to be suspended by policy, but cannot be stopped: kill 5: EPERM.")
        #expect(
            sentence(
                held + [
                    ("state", .string("not-running")), ("launching", .bool(true)), ("stopped", .bool(true)),
                ])
                == "It is stopped by policy, while it is being launched.")
    }

    @Test("of an application that runs it says why it is not suspended")
    func running() {
        let cases: [([(String, Variant)], String)] = [
            ([("launching", .bool(true)), ("state", .string("not-running"))], "it is being launched"),
            ([("terminating", .bool(true))], "it is being ended"),
            ([("suspension", .string("manual"))], "Suspension=manual, so policy never suspends it"),
            ([("suspension", .string("never"))], "Suspension=never, so policy never suspends it"),
            ([("state", .string("active"))], "it has the focus"),
            ([("state", .string("inactive"))], "a window is visible"),
            (
                [("state", .string("inactive")), ("windows", .strings([]))],
                "it counts as visible, because no session agent or other reporter reports its windows"
            ),
            (
                [("objections", .strings(["the window reporter of its session is gone"]))],
                "no session agent or other reporter reports its windows any more"
            ),
            (
                [
                    ("objections", .strings(["the machine is shutting down"])),
                    ("suspension-deadline", .uint64(4_000_000)),
                ], "the machine is shutting down"
            ),
            ([("suspension-deadline", .uint64(4_000_000))], "policy suspends it in 3.0 s"),
            ([("suspension-deadline", .uint64(900_000))], "policy suspends it now"),
            (
                [
                    ("suspension-deadline", .uint64(31_000_000)),
                    ("objections", .strings(["background task copy"])),
                    ("exemptions", .strings(["background task copy"])), ("tasks", .array("(tst)", [])),
                ], "policy suspends it in 30 s at the latest, when its background tasks have ended"
            ),
            (
                [
                    ("suspension-deadline", .uint64(1_250_000)),
                    ("objections", .strings(["terminal-job: make"])),
                ], "policy suspends it in 250 ms, unless this still speaks against it: terminal-job: make"
            ),
            // `SuspendWhen=inactive`
            (
                [
                    ("state", .string("inactive")), ("suspension-deadline", .uint64(4_000_000)),
                    ("objections", .strings(["has a visible window"])),
                ], "policy suspends it in 3.0 s"
            ),
            ([("would-suspend", .bool(true))], "policy would have suspended it, but Mode=observe"),
            (
                [
                    ("exemptions", .strings(["reported audio", "background mode voip"])),
                    ("objections", .strings(["reported audio", "background mode voip"])),
                ], "something keeps it running: reported audio; background mode voip"
            ),
            ([("objections", .strings(["a debugger"]))], "this speaks against it: a debugger"),
            (
                [("last-objection", .string("network: 5 MiB/s"))],
                "when policy was about to do it, this spoke against it: network: 5 MiB/s"
            ),
            ([], "policy has set no time for it"),
        ]
        for (changes, reason) in cases {
            #expect(sentence(changes) == "It is not suspended: \(reason).")
        }
    }
}
