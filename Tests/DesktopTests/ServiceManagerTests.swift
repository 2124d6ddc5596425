import AppStateBus
import Foundation
import Glibc
import TestSupport
import Testing

@testable import Desktop

/// What happens to a start if the service manager is an old one, or cannot be asked.
@Suite(
    "Service managers that create no unit", .serialized,
    .enabled(if: PrivateBus.isAvailable, "needs dbus-daemon"))
struct ServiceManagerTests {
    /// A bus, a loop, and a starter whose runtime directory shows a running service manager.
    private final class Stage {
        let session: PrivateBus
        let loop: EventLoop
        private var manager: Bus?
        private var slots: [Slot] = []
        /// The properties of each requested unit.
        private(set) var asked: [[String]] = []

        init() throws {
            session = try PrivateBus(
                policy:
                    "<policy context=\"default\"><allow own=\"*\"/><allow send_type=\"method_call\"/></policy>"
            )
            loop = try EventLoop()
            mkdir("\(session.directory)/systemd", 0o755)
            try "".write(toFile: "\(session.directory)/systemd/private", atomically: true, encoding: .utf8)
        }

        /// Stands in for a service manager that does not know a property.
        func takeName(withoutProperty unknown: String) throws {
            let bus = try Bus.open(address: session.address)
            let method = Method(
                "StartTransientUnit",
                in: [("name", "s"), ("mode", "s"), ("properties", "a(sv)"), ("aux", "a(sa(sv))")],
                out: [("job", "o")]
            ) { [unowned self] call in
                let names = try call.read { message in
                    try message.skip("ss")
                    var names: [String] = []
                    guard try message.enter(.array, "(sv)") else { return names }
                    while try message.enter(.struct, "sv") {
                        names.append(try message.readString())
                        try message.skip("v")
                        try message.exit()
                    }
                    return names
                }
                asked.append(names)
                guard !names.contains(unknown) else {
                    throw MethodError(
                        "org.freedesktop.DBus.Error.PropertyReadOnly",
                        "Cannot set property \(unknown), or unknown property.")
                }
                throw MethodError("org.example.Error.Full", "no room")
            }
            slots.append(
                try bus.add(
                    Interface("org.freedesktop.systemd1.Manager", methods: [method]),
                    at: "/org/freedesktop/systemd1"))
            try bus.attach(to: loop)
            try bus.requestName("org.freedesktop.systemd1")
            manager = bus
        }

        /// The reason why the program was not started.
        func refusal(over bus: Bus?) throws -> String {
            try bus?.attach(to: loop)
            let starter = ProgramStarter(
                loop: loop, bus: bus, executable: try #require(StartTests.actor), directory: session.directory
            )
            var result: Result<StartedProgram, DesktopFailure>?
            let request = ProgramRequest(
                id: "a", name: "A", invocation: Invocation(program: "/bin/true", arguments: ["true"]))
            starter.start(request) { result = $0 }
            while result == nil { _ = try loop.runOnce(timeout: 50_000) }
            guard case .failure(let failure)? = result else { throw TestFailure("the program was started") }
            return "\(failure)"
        }
    }

    @Test(
        "systemd before 250 has no ExitType, and is asked for a unit that ends with its main process"
    )
    func older() throws {
        let stage = try Stage()
        try stage.takeName(withoutProperty: "ExitType")
        let why = try stage.refusal(over: try Bus.open(address: stage.session.address))
        #expect(why == "a was not started: org.example.Error.Full: no room")
        #expect(stage.asked.map { $0.contains("ExitType") } == [true, false])
        #expect(stage.asked.map { $0.contains("KillMode") } == [false, true])
        #expect(stage.asked.first?.count == stage.asked.last?.count)
    }

    @Test("a service manager that lacks a required property refuses, and is not asked endlessly")
    func tooOld() throws {
        let stage = try Stage()
        try stage.takeName(withoutProperty: "ExecStartEx")
        let why = try stage.refusal(over: try Bus.open(address: stage.session.address))
        #expect(why.contains("Cannot set property ExecStartEx") && stage.asked.count == 2)
    }

    @Test("a start that is given up before it is answered stops no unit: it may be that of an earlier agent")
    func unanswered() throws {
        let stage = try Stage()
        let manager = try Bus.open(address: stage.session.address)
        var calls: [String] = []
        let filter = try manager.addFilter { message in
            guard let member = message.member else { return false }
            calls.append(member)
            return ["StartTransientUnit", "StopUnit", "UnrefUnit"].contains(member)
        }
        try manager.attach(to: stage.loop)
        try manager.requestName("org.freedesktop.systemd1")
        let bus = try Bus.open(address: stage.session.address)
        try bus.attach(to: stage.loop)
        let request = ProgramRequest(
            id: "a", name: "A", invocation: Invocation(program: "/bin/true", arguments: ["true"]))
        let call = try UnitProgram.start(request, ("/bin/true", []), number: 1, bus: bus) { _ in }
        while calls.last != "StartTransientUnit" { _ = try stage.loop.runOnce(timeout: 50_000) }
        call.abandon()
        while calls.last != "UnrefUnit" { _ = try stage.loop.runOnce(timeout: 50_000) }
        #expect(calls.suffix(2) == ["StartTransientUnit", "UnrefUnit"])
        withExtendedLifetime((manager, filter, call)) {}
    }

    @Test("if the service manager runs but cannot be asked, no program is started as a child with our limits")
    func unreachable() throws {
        let stage = try Stage()
        let start = "a was not started: the service manager of the user cannot be asked for a unit: "
        #expect(try stage.refusal(over: nil) == start + "there is no bus of the user")
        let bus = try Bus.open(address: stage.session.address)
        #expect(try stage.refusal(over: bus) == start + "it is not on the bus of the user")
        let lost = try Bus.open(address: stage.session.address)
        lost.close()
        #expect(try stage.refusal(over: lost).hasPrefix(start))
    }
}
