import AppStateBus
import Glibc
import TestSupport
import Testing

/// From KWin, by the script, to a subscriber.
extension PlasmaTests {
    @Test(
        "script: changes of windows reach a subscriber as the right edges; nothing is left in KWin",
        .enabled(if: Station.isAvailable, Station.whatIsMissing))
    func scriptWalks() throws {
        let kwin = try KWin.refusing()
        let station = try Station()
        try station.startAgent(environment: kwin.environment)
        let (beta, _) = try walk(kwin, station)

        // An agent that ends unloads the script. An agent that is killed leaves it until it has no receiver.
        let kwinBus = try Bus.open(address: kwin.bus?.address ?? "")
        let first = try Self.script(of: station, on: kwinBus)
        #expect(try Self.isLoaded(first, on: kwinBus))
        station.agent?.kill(SIGTERM)
        #expect(try station.agent?.waitForExit() == .exited(0))
        // KWin unloads it after the agent has asked, possibly after the agent's end.
        try station.wait("the script to be unloaded") { try !Self.isLoaded(first, on: kwinBus) }
        try station.startAgent(environment: kwin.environment)
        let second = try Self.script(of: station, on: kwinBus)
        station.agent?.kill(SIGKILL)
        try station.agent?.waitForExit()
        #expect(try Self.isLoaded(second, on: kwinBus))
        try beta.ask("put-away 1")
        try station.wait("the script to be gone") { try !Self.isLoaded(second, on: kwinBus) }

        try station.startAgent(environment: kwin.environment)
        try kwin.end()
        #expect(try station.agent?.waitForExit() == .exited(0))
    }

    @Test(
        "script: without an installed script or without a session bus the refusal names both problems",
        .enabled(if: Station.isAvailable, Station.whatIsMissing))
    func scriptRefused() throws {
        let kwin = try KWin.refusing()
        for (variable, why) in [
            ("XDG_DATA_HOME", "appstated/kwin/windows.js, is in none of"),
            ("DBUS_SESSION_BUS_ADDRESS", "there is no session bus to ask KWin"),
        ] {
            var environment = kwin.environment
            environment[variable] = variable == "XDG_DATA_HOME" ? "/nowhere" : .some(nil)
            environment["XDG_DATA_DIRS"] = "/nowhere"
            let agent = try Child(
                Programs.built("appstate-session") ?? "", environment: environment)
            #expect(try agent.waitForExit() == .exited(3))
            #expect(agent.errors.contains("lacks org_kde_plasma_window_management"))
            #expect(agent.errors.contains(why))
        }
    }

    /// The name of the script of the station's agent, which contains the agent's connection to KWin's bus.
    private static func script(of station: Station, on bus: Bus) throws -> String {
        var found: String?
        try station.wait("the agent's script in KWin") {
            let list = try bus.newDriverCall("ListNames")
            let names = try bus.call(list, timeout: 300_000_000).readStrings()
            found = try names.filter { $0.hasPrefix(":") }.map { "appstate-session\($0)-1" }
                .first { try isLoaded($0, on: bus) }
            return found != nil
        }
        return try #require(found)
    }

    private static func isLoaded(_ script: String, on bus: Bus) throws -> Bool {
        let message = try bus.newCall(
            destination: "org.kde.KWin", path: "/Scripting", interface: "org.kde.kwin.Scripting",
            member: "isScriptLoaded")
        try message.append(script)
        return try bus.call(message, timeout: 300_000_000).readBool()
    }
}
