import AppStateBus
import Foundation
import Glibc
import TestSupport
import Testing

/// `resume` and `toggle` of an application that another user has suspended, with a stand-in for the daemon.
@Suite(
    "appstatectl resume and toggle",
    .enabled(
        if: PrivateBus.isAvailable && Programs.built("appstatectl") != nil,
        "needs dbus-daemon and appstatectl built beside"))
struct HoldCommandTests {
    /// A bus with an application, and the holds that are left when it was to be resumed.
    private final class Desk {
        let bus: PrivateBus
        private let loop: EventLoop
        private let daemon: Bus
        private var objects: [Slot] = []
        var holds: [(reason: String, holder: String)] = []
        var isSuspended = true

        static let path = "/org/appstate1/application/7"

        init() throws {
            bus = try PrivateBus.forDaemon()
            loop = try EventLoop()
            daemon = try Bus.open(address: bus.address)
            let application = Interface(
                "org.appstate1.Application",
                methods: [
                    Method("Resume") { call in try call.reply() },
                    Method("Toggle", in: [("options", "a{sv}")], out: [("suspended", "b")]) {
                        [unowned self] call in
                        try call.reply { try $0.append(isSuspended) }
                    },
                ],
                properties: [
                    Property("SuspendHolds", "a(ss)") { [unowned self] message, _ in
                        try message.withContainer(.array, "(ss)") {
                            for hold in holds {
                                try message.withContainer(.struct, "ss") {
                                    try message.append(hold.reason)
                                    try message.append(hold.holder)
                                }
                            }
                        }
                    }
                ])
            let manager = Interface(
                "org.appstate1.Manager",
                methods: [
                    Method(
                        "ToggleFocused", in: [("options", "a{sv}")],
                        out: [("application", "o"), ("suspended", "b")]
                    ) { [unowned self] call in
                        try call.reply {
                            try $0.append(objectPath: Self.path)
                            try $0.append(isSuspended)
                        }
                    }
                ])
            objects = [
                try daemon.add(application, at: Self.path), try daemon.add(manager, at: "/org/appstate1"),
            ]
            try daemon.attach(to: loop)
            try daemon.requestName("org.appstate1")
        }

        func run(_ arguments: String...) throws -> (output: String, errors: String, status: Child.Ending) {
            let program = Programs.built("appstatectl") ?? "appstatectl"
            let child = try Child(program, arguments, environment: bus.environment)
            let deadline = ContinuousClock.now + .seconds(300)
            while true {
                if let status = child.advance() { return (child.output, child.errors, status) }
                guard ContinuousClock.now < deadline else { throw TestFailure("appstatectl did not exit") }
                try loop.runOnce(timeout: 20_000)
            }
        }
    }

    /// A user who does not run this test.
    private static let other = "uid:\(getuid() + 1)"

    @Test("resume fails if a request of another user keeps the application suspended, and says whose")
    func resume() throws {
        let desk = try Desk()
        desk.holds = [("request", Self.other)]
        let sentence =
            "\(Desk.path) stays suspended (request \(Self.other)) until \(Self.other) has run: "
            + "appstatectl resume 7\n"
        let held = try desk.run("resume", Desk.path)
        #expect(held.status == .exited(1) && held.output.isEmpty)
        #expect(held.errors == "appstatectl: \(sentence)")
        // The name is not repeated where a command for several applications puts it in front.
        let both = try desk.run("resume", Desk.path, Desk.path)
        #expect(both.status == .exited(1))
        #expect(both.errors == "appstatectl: \(sentence)appstatectl: \(sentence)")
        // The answer may come before the kernel has let the processes run.
        desk.holds = [("signal", "pid 1")]
        let stopped = try desk.run("resume", Desk.path)
        #expect(stopped.status == .exited(0) && stopped.errors.isEmpty)
    }

    @Test("toggle does not promise an end of the suspension with the focus if another user's request stays")
    func toggle() throws {
        let desk = try Desk()
        desk.holds = [("request", Self.other)]
        for arguments in [["toggle", Desk.path], ["toggle", "--focused"]] {
            let held = try desk.run(arguments[0], arguments[1])
            #expect(held.status == .exited(0) && held.output.isEmpty)
            #expect(held.errors.contains("stays suspended (request \(Self.other)) until \(Self.other) has"))
        }
        desk.holds = [("toggle", "uid:\(getuid())")]
        let suspended = try desk.run("toggle", Desk.path)
        #expect(suspended.output == "\(Desk.path) is suspended until it gets the focus\n")
        #expect(suspended.errors.isEmpty)
        (desk.holds, desk.isSuspended) = ([], false)
        #expect(try desk.run("toggle", Desk.path).output == "\(Desk.path) runs\n")
    }
}
