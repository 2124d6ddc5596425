import AppStateBus
import Glibc
import TestSupport
import Testing

@testable import appstate_session

/// What becomes of a script that KWin does not run.
@Suite("KWin's scripts that run once", .enabled(if: PrivateBus.isAvailable, "needs dbus-daemon"))
struct KWinOrderTests {
    @Test("a script that KWin loads but does not run is unloaded, and has failed")
    func unloaded() throws {
        let kwin = try KWinStandIn()
        let peer = try kwin.peer()
        var ends: [String?] = []
        let order = try KWinOrder("", name: "script", directory: kwin.bus.directory, kwin: peer) {
            ends.append($0)
        }
        order.begin()
        try kwin.run(peer) { !ends.isEmpty }
        #expect(ends == ["it does not run the script"])
        #expect(kwin.unloaded == ["script"])
        withExtendedLifetime(order) {}
    }

    @Test("a script that KWin cannot be asked to run fails when it begins, not before")
    func lost() throws {
        let kwin = try KWinStandIn()
        let peer = try kwin.peer()
        peer.bus.close()
        var ends: [String?] = []
        let order = try KWinOrder("", name: "script", directory: kwin.bus.directory, kwin: peer) {
            ends.append($0)
        }
        #expect(ends.isEmpty)
        order.begin()
        #expect(ends.count == 1)
        withExtendedLifetime(order) {}
    }
}

/// A connection that owns KWin's name. It loads scripts, and has no object for them.
private final class KWinStandIn {
    let bus: PrivateBus
    /// The names of the unloaded scripts.
    private(set) var unloaded: [String] = []
    private let loop: EventLoop
    private let connection: Bus
    private var slot: Slot?

    private static let name = "org.kde.KWin"

    init() throws {
        bus = try PrivateBus(
            policy: """
                <policy context="default"><allow own="*"/><allow send_type="method_call"/></policy>
                """)
        loop = try EventLoop()
        connection = try Bus.open(address: bus.address)
        try connection.attach(to: loop)
        slot = try connection.add(
            Interface(
                "org.kde.kwin.Scripting",
                methods: [
                    Method("loadScript", in: [("path", "s"), ("name", "s")], out: [("number", "i")]) { call in
                        try call.reply { try $0.append(Int32(5)) }
                    },
                    Method("unloadScript", in: [("name", "s")], out: [("wasLoaded", "b")]) {
                        [unowned self] call in
                        unload(try call.read { try $0.readString() })
                        try call.reply { try $0.append(true) }
                    },
                ]), at: "/Scripting")
        try connection.requestName(Self.name)
    }

    private func unload(_ script: String) { unloaded.append(script) }

    func peer() throws -> SessionPeer { try SessionPeer("KWin", name: Self.name, address: bus.address) }

    func run(_ peer: SessionPeer, until done: () -> Bool) throws {
        let isDone = try eventually {
            while try loop.runOnce(timeout: 0) {}
            var ready = pollfd(fd: peer.descriptor, events: Int16(POLLIN), revents: 0)
            if poll(&ready, 1, 10) == 1 { try peer.dispatch() }
            return done()
        }
        if !isDone { throw TestFailure("KWin was not asked") }
    }
}
