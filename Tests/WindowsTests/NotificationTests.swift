import AppStateBus
import AppStateContract
import Desktop
import Foundation
import Glibc
import Linux
import Systemd
import TestSupport
import Testing

@testable import appstate_session

/// What the user is told, and what the portal is, on a real bus with stand-ins for the daemon, logind and the services of
/// the desktop.
@Suite(
    "Notifications and the background portal",
    .enabled(if: Programs.inPath("dbus-daemon") != nil, "needs dbus-daemon"))
struct NotificationTests {
    private struct Shown: Equatable {
        let summary: String
        let body: String
        let actions: [String]
    }

    private final class Scene {
        let loop: EventLoop
        let bus: SessionBus
        let service: Bus
        let client: Bus
        let session: appstate_session.SessionBus
        let notifier: Notifier
        var shown: [Shown] = []
        var launched: [String] = []
        var level = "critical"
        var isLocked = false
        var allowed: [String: String] = [:]
        private var slots: [Slot] = []

        init() throws {
            let loop = try EventLoop()
            self.loop = loop
            bus = try SessionBus()
            service = try Bus.open(address: bus.address)
            try service.attach(to: loop)
            client = try Bus.open(address: bus.address)
            try client.attach(to: loop)
            let journal = Journal(identifier: "test")
            session = appstate_session.SessionBus(address: bus.address, loop: loop, journal: journal)
            notifier = try Notifier(session: session, journal: journal)
            try serve(
                "org.freedesktop.Notifications", "/org/freedesktop/Notifications",
                [
                    Method(
                        "Notify",
                        in: [
                            ("app", "s"), ("replaces", "u"), ("icon", "s"), ("summary", "s"), ("body", "s"),
                            ("actions", "as"), ("hints", "a{sv}"), ("timeout", "i"),
                        ], out: [("id", "u")]
                    ) { [unowned self] call in
                        try call.message.skip("sus")
                        shown.append(
                            Shown(
                                summary: try call.message.readString(), body: try call.message.readString(),
                                actions: try call.message.readStrings()))
                        try call.reply { try $0.append(UInt32(shown.count)) }
                    },
                    Method("CloseNotification", in: [("id", "u")]) { [unowned self] call in
                        let id = try call.message.readUInt32()
                        try call.reply()
                        try tell("NotificationClosed", id) { try $0.append(UInt32(3)) }
                    },
                ])
            try serve(
                BusNames.manager, BusNames.root,
                [
                    Method("Launch", in: [("id", "s"), ("options", "a{sv}")], out: [("path", "o")]) {
                        [unowned self] call in
                        let id = try call.message.readString()
                        let token = try call.message.readDictionary().first?.value
                        launched.append("\(id) \(token.map { "\($0)" } ?? "-")")
                        try call.reply { try $0.append(objectPath: "/a") }
                    }
                ],
                [
                    Property("MemoryPressure", "s") { [unowned self] message, _ in try message.append(level) }
                ], name: BusNames.service)
            try serve(
                "org.freedesktop.login1.Session", "/org/freedesktop/login1/session/auto", [],
                [
                    Property("LockedHint", "b", emits: .change) { [unowned self] message, _ in
                        try message.append(isLocked)
                    }
                ], name: "org.freedesktop.login1")
            try serve(
                "org.freedesktop.impl.portal.PermissionStore", "/org/freedesktop/impl/portal/PermissionStore",
                [
                    Method(
                        "Lookup", in: [("table", "s"), ("id", "s")], out: [("map", "a{sas}"), ("data", "v")]
                    ) {
                        [unowned self] call in
                        try call.reply { message in
                            try message.withContainer(.array, "{sas}") {
                                for (id, word) in allowed {
                                    try message.withContainer(.dictEntry, "sas") {
                                        try message.append(id)
                                        try message.append(strings: [word])
                                    }
                                }
                            }
                            try message.append(Variant.byte(0))
                        }
                    }
                ])
        }

        private func serve(
            _ interface: String, _ path: String, _ methods: [AppStateBus.Method],
            _ properties: [Property] = [],
            name: String? = nil
        ) throws {
            slots.append(
                try service.add(Interface(interface, methods: methods, properties: properties), at: path))
            try service.requestName(name ?? interface)
        }

        func emit(
            _ path: String, _ interface: String, _ member: String,
            _ write: (borrowing Message) throws -> Void
        ) throws {
            let signal = try service.newSignal(path: path, interface: interface, member: member)
            try write(signal)
            try service.send(signal)
        }

        func tell(_ member: String, _ id: UInt32, _ write: (borrowing Message) throws -> Void) throws {
            try emit("/org/freedesktop/Notifications", "org.freedesktop.Notifications", member) {
                try $0.append(id)
                try write($0)
            }
        }

        func relax() throws {
            level = "normal"
            try emit(BusNames.root, BusNames.manager, "MemoryPressureChanged") { try $0.append("normal") }
        }

        /// Waits until all that was sent has been handled.
        func settle() throws {
            for _ in 0..<3 {
                var isDone = false
                let slot = try client.callAsync(try client.newDriverCall("GetId")) { _ in isDone = true }
                try loop.run("an answer") { isDone }
                withExtendedLifetime(slot) {}
            }
        }

        /// Calls the portal, and answers with the reply.
        func portal(
            _ member: String, at path: String = BackgroundPortal.path,
            _ interface: String = BackgroundPortal.interface,
            write: (borrowing Message) throws -> Void = { _ in },
            read: @escaping (borrowing Message) -> Void
        ) throws -> Slot {
            let call = try client.newCall(
                destination: BackgroundPortal.name, path: path, interface: interface, member: member)
            try write(call)
            return try client.callAsync(call, handler: read)
        }
    }

    @Test("ended applications are told of in one notification when memory is free, and opened again")
    func ended() throws {
        let scene = try Scene()
        let notices = try EndNotices(
            loop: scene.loop, journal: Journal(identifier: "test"), notifier: scene.notifier,
            entries: DesktopEntries(directories: []), session: "3")
        let bus = try Bus.open(address: scene.bus.address)
        try bus.attach(to: scene.loop)
        try notices.start(on: bus) { Issue.record("\($0)") }
        try scene.settle()
        notices.note("org.example.<A>", 300 << 20, [(key: "session", value: .string("3"))])
        notices.note("org.example.B", 1_700 << 20, [(key: "unsaved-changes", value: .bool(true))])
        notices.note("org.example.Again", 1, [(key: "relaunch", value: .bool(true))])
        notices.note("org.example.Elsewhere", 1, [(key: "session", value: .string("4"))])
        notices.note("org.example.Hung", nil, [])
        scene.isLocked = true
        try scene.settle()
        try scene.relax()
        try scene.settle()
        #expect(scene.shown.isEmpty)
        scene.isLocked = false
        try scene.emit("/org/freedesktop/login1/session/_33", BusNames.properties, "PropertiesChanged") {
            try $0.append("org.freedesktop.login1.Session")
            try $0.appendDictionary([("LockedHint", .bool(false))])
            try $0.append(strings: [])
        }
        try scene.loop.run("a notification") { !scene.shown.isEmpty }
        #expect(
            scene.shown == [
                Shown(
                    summary: "3 applications were closed",
                    body: "org.example.&lt;A&gt;: 300 MiB\norg.example.B: 1.6 GiB, unsaved changes\n"
                        + "org.example.Hung: did not respond",
                    // They have no desktop entries.
                    actions: [])
            ])
        try scene.settle()
        try scene.tell("ActivationToken", 1) { try $0.append("token") }
        try scene.tell("ActionInvoked", 1) { try $0.append("org.example.B") }
        try scene.loop.run("a launch") { !scene.launched.isEmpty }
        #expect(scene.launched == ["org.example.B \(Variant.string("token"))"])
        // The next one waits; with Notify=no nothing waits.
        notices.note("org.example.C", 1, [])
        try scene.settle()
        notices.configure(isWanted: false)
        try scene.settle()
        #expect(scene.shown.count == 1)
    }

    @Test("the portal is told the states of applications, and nothing by an agent that sees no windows")
    func states() throws {
        let scene = try Scene()
        var states: [String: BackgroundPortal.AppState]? = [
            "org.example.A": .active, "org.example.B": .background,
        ]
        let portal = try BackgroundPortal(
            session: scene.session, journal: Journal(identifier: "test"), notifier: scene.notifier
        ) { states }
        try scene.settle()
        var changes = 0
        let match = try scene.client.match(
            "type='signal',member='RunningApplicationsChanged'", failed: { _ in },
            handler: { _ in changes += 1 })
        var answers: [String] = []
        func ask() throws {
            let before = answers.count
            let slot = try scene.portal(
                "GetAppState",
                read: { reply in
                    let apps = (try? reply.readDictionary())?.map { "\($0.key) \($0.value)" }
                    answers.append(reply.error?.name ?? apps?.sorted().joined(separator: ", ") ?? "")
                })
            try scene.loop.run("an answer") { answers.count > before }
            withExtendedLifetime(slot) {}
        }
        try ask()
        #expect(answers == ["org.example.A \(Variant.uint32(2)), org.example.B \(Variant.uint32(0))"])
        states = ["org.example.A": .running, "org.example.B": .background]
        portal.update()
        try scene.settle()
        #expect(changes == 0)
        states = ["org.example.A": .running, "org.example.B": .running]
        portal.update()
        try scene.loop.run("the signal") { changes == 1 }
        states = nil
        portal.update()
        try ask()
        #expect(answers.last == "org.freedesktop.DBus.Error.Failed")
        withExtendedLifetime(match) {}
    }

    @Test("the user decides whether an application may stay in the background")
    func question() throws {
        let scene = try Scene()
        let portal = try BackgroundPortal(
            session: scene.session, journal: Journal(identifier: "test"), notifier: scene.notifier
        ) { nil }
        try scene.settle()
        for (index, (key, choice)) in [("allow", 1), ("forbid", 0), (nil, 2)].enumerated() {
            var answer: Variant?
            let handle = "/org/freedesktop/portal/desktop/notify/background\(index)"
            let slot = try scene.portal(
                "NotifyBackground",
                write: { call in
                    try call.append(objectPath: handle)
                    try call.append("org.example.A")
                    try call.append("Example")
                },
                read: { reply in
                    try? reply.skip("u")
                    answer = (try? reply.readDictionary())?.first { $0.key == "result" }?.value
                })
            try scene.loop.run("a question") { scene.shown.count == index + 1 }
            #expect(scene.shown.last?.summary == "Example runs in the background")
            try scene.settle()
            if let key {
                try scene.tell("ActionInvoked", UInt32(index + 1)) { try $0.append(key) }
            } else {
                try scene.tell("NotificationClosed", UInt32(index + 1)) { try $0.append(UInt32(2)) }
            }
            try scene.loop.run("an answer") { answer != nil }
            #expect(answer == .uint32(UInt32(choice)))
            withExtendedLifetime(slot) {}
        }
        withExtendedLifetime(portal) {}
    }

    @Test("Flatpaks that the user allows to run in the background object, until the permission changes")
    func permissions() throws {
        let scene = try Scene()
        scene.allowed = ["org.example.Yes": "yes", "org.example.No": "no"]
        var told: Set<Int32> = []
        let permissions = try BackgroundPermissions(
            session: scene.session, journal: Journal(identifier: "test")
        ) { told = $0 }
        func follow(_ names: [Int32: String]) {
            var situation = Situation()
            for (pid, name) in names {
                situation.applications.add(Applications.Entry(name: name, path: "/\(pid)"), pid)
            }
            permissions.follow(situation)
        }
        follow([7: "org.example.Yes", 8: "org.example.No", 9: "org.example.Other"])
        try scene.loop.run("the answer") { told == [7] }
        scene.allowed = ["org.example.No": "yes"]
        try scene.emit(
            "/org/freedesktop/impl/portal/PermissionStore", "org.freedesktop.impl.portal.PermissionStore",
            "Changed"
        ) { message in
            try message.append("background")
            try message.append("background")
        }
        try scene.loop.run("the change") { told == [8] }
        follow([7: "org.example.Yes"])
        #expect(told.isEmpty)
    }
}
