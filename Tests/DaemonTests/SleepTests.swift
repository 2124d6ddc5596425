import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// What logind announces of the machine's sleep and shutdown.
@Suite(
    "Sleep and shutdown", .enabled(if: TestDaemon.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
struct SleepTests {
    @Test(
        "before a shutdown policy resumes what it holds and suspends nothing; requested holds stay")
    func shutdown() throws {
        let daemon = try TestDaemon(
            configuration: "[LifeCycle]\nBackgroundGraceSec=0\n", policy: LoginStandIn.policy)
        let client = try daemon.subscriber()
        let logind = try LoginStandIn(daemon, client)
        let children = try (0..<3).map { _ in try Child("sleep", ["1000"]) }
        let paths = try children.prefix(2).map {
            try client.register("org.example.App", $0.pid, [("suspension", .string("automatic"))])
        }
        for path in paths { try client.wait(for: path, toBe: "suspended") }
        try client.application(paths[1], "Suspend")

        try logind.prepareForShutdown(true)
        try client.wait(for: paths[0], toBe: "background")
        #expect(try !isStopped(children[0].pid))
        #expect(try client.state(paths[1]) == "suspended" && isStopped(children[1].pid))
        let late = try client.register(
            "org.example.Late", children[2].pid, [("suspension", .string("automatic"))])
        #expect(try client.listObjections(late).contains("the machine is shutting down"))
        #expect(try client.state(late) == "background")

        try logind.prepareForShutdown(false)
        for path in paths + [late] { try client.wait(for: path, toBe: "suspended") }
    }

    @Test("before the machine sleeps, the applications run that delay this, if policy has suspended them")
    func delay() throws {
        let daemon = try TestDaemon(
            configuration: "[LifeCycle]\nBackgroundGraceSec=0\n", policy: LoginStandIn.policy)
        let client = try daemon.subscriber()
        let logind = try LoginStandIn(daemon, client)
        let children = try (0..<4).map { _ in try Child("sleep", ["1000"]) }
        logind.inhibitors = [
            ("shutdown:sleep", "delay", children[0].pid), ("shutdown", "delay", children[1].pid),
            ("sleep", "delay", children[2].pid),
        ]
        let paths = try children.map {
            try client.register("org.example.App", $0.pid, [("suspension", .string("automatic"))])
        }
        for path in paths { try client.wait(for: path, toBe: "suspended") }
        try client.application(paths[2], "Suspend")

        try logind.prepareForSleep(true)
        // The daemon waits a second for logind's answer, which this wait gives.
        try client.wait("the edge") { client.edges(of: paths[0]).contains("suspended→background") }
        #expect(try client.explain(paths[0])["last-demand"] == .string("sleep"))
        for path in paths.dropFirst() {
            #expect(try client.explain(path)["last-demand"] == nil && client.state(path) == "suspended")
        }
        // It gets a grace period, and is suspended again after it.
        try client.wait(for: paths[0], toBe: "suspended")

        // One that is taken at the last moment counts as well.
        logind.inhibitors = [("sleep", "delay", children[3].pid)]
        try logind.prepareForSleep(false)
        try logind.prepareForSleep(true)
        try client.wait("the edge") { client.edges(of: paths[3]).contains("suspended→background") }
        #expect(try client.explain(paths[3])["last-demand"] == .string("sleep"))
    }

    @Test("SuspendWhen=sleep: suspended before the machine sleeps, until it is awake and the network is back")
    func rule() throws {
        let network = "org.freedesktop.NetworkManager"
        let daemon = try TestDaemon(
            configuration: "[LifeCycle]\nBackgroundGraceSec=0\n",
            policy: LoginStandIn.policy + "<policy user=\"\(getuid())\"><allow own=\"\(network)\"/></policy>"
                + "<policy context=\"default\"><allow send_destination=\"\(network)\"/></policy>")
        let client = try daemon.subscriber()
        let logind = try LoginStandIn(daemon, client)
        let children = try (0..<2).map { _ in try Child("sleep", ["1000"]) }
        let paths = try children.map {
            try client.register("org.example.App", $0.pid, [("suspension", .string("automatic"))])
        }
        for path in paths {
            try client.wait(for: path, toBe: "suspended")
            try client.application(path, "Configure") {
                try $0.appendDictionary([("suspend-when", .string("sleep"))])
            }
            try client.wait(for: path, toBe: "background")
        }
        // The second one delays the sleep itself, and is suspended when it no longer does.
        logind.inhibitors = [("sleep", "delay", children[1].pid)]
        try client.wait("the lock") { logind.delay != nil }
        try logind.prepareForSleep(true)
        try client.wait(for: paths[0], toBe: "suspended")
        #expect(try client.holds(paths[0]) == ["sleep appstated"] && client.state(paths[1]) == "background")
        #expect(!logind.isReleased)
        logind.inhibitors = []
        try client.wait(for: paths[1], toBe: "suspended")
        try client.wait("the lock to be released") { logind.isReleased }
        // Without NetworkManager, nothing is waited for.
        try logind.prepareForSleep(false)
        for path in paths { try client.wait(for: path, toBe: "background") }

        let manager = try Bus.open(address: daemon.bus.address)
        try manager.attach(to: client.loop)
        var state: UInt32 = 10
        let slot = try manager.add(
            Interface(
                network,
                properties: [
                    Property("State", "u", emits: .change) { message, _ in try message.append(state) }
                ]),
            at: "/org/freedesktop/NetworkManager")
        try manager.requestName(network)
        try client.wait("the next lock") { !logind.isReleased }
        try logind.prepareForSleep(true)
        for path in paths { try client.wait(for: path, toBe: "suspended") }
        try logind.prepareForSleep(false)
        try client.wait("the next lock") { !logind.isReleased }
        try client.settle()
        #expect(try paths.allSatisfy { try client.state($0) == "suspended" })
        state = 70
        let signal = try manager.newSignal(
            path: "/org/freedesktop/NetworkManager", interface: BusNames.properties,
            member: "PropertiesChanged")
        try signal.append(network)
        try signal.appendDictionary([("State", .uint32(state))])
        try signal.append(strings: [])
        try manager.send(signal)
        for path in paths { try client.wait(for: path, toBe: "background") }
        withExtendedLifetime(slot) {}
    }

    @Test("what the daemon had frozen and the wake-up has thawed is frozen again")
    func reasserted() throws {
        let daemon = try TestDaemon(policy: LoginStandIn.policy)
        let client = try daemon.subscriber()
        let logind = try LoginStandIn(daemon, client)
        let children = try (0..<2).map { _ in try Child("sleep", ["1000"]) }
        let home = try TestCgroup("app-sleeper")
        try home.take(children[0].pid)
        let paths = try children.map { try client.register("org.example.App", $0.pid) }
        for path in paths { try client.application(path, "Suspend") }
        #expect(try home.cgroup.isFrozen())

        try logind.prepareForSleep(true)
        try logind.prepareForSleep(false)
        try client.settle()
        #expect(try home.cgroup.isFrozen())
        // Thawed without the kernel's own notification, as far as that is possible.
        try home.cgroup.thaw()
        kill(children[1].pid, SIGCONT)
        try logind.prepareForSleep(false)
        try client.wait("both to stop again") { try home.cgroup.isFrozen() && isStopped(children[1].pid) }
        try client.wait("both to be reported as suspended") {
            try paths.allSatisfy { try client.state($0) == "suspended" }
        }
        #expect(try paths.allSatisfy { try client.holds($0) == ["request uid:\(getuid())"] })
    }
}
