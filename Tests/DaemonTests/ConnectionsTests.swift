import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// Calls from connections that the daemon does not know yet.
@Suite("First calls", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct ConnectionsTests {
    private let daemon: TestDaemon

    init() throws { daemon = try TestDaemon() }

    /// Everything that `body` sends is in the daemon's queue at once, in the order in which it was sent.
    private func whileStopped(_ body: () throws -> Void) throws {
        daemon.process.kill(SIGSTOP)
        defer { daemon.process.kill(SIGCONT) }
        try body()
    }

    private func ping(_ bus: Bus) throws -> Message {
        try bus.newCall(
            destination: BusNames.service, path: BusNames.root, interface: "org.freedesktop.DBus.Peer",
            member: "Ping")
    }

    @Test(
        "calls of connections that the daemon does not know yet are answered in order, whoever else calls",
        arguments: [1, 6])
    func order(of strangerCount: Int) throws {
        let strangers = try (0..<strangerCount).map { _ in try daemon.client() }
        // A bus allows each connection 128 pending replies.
        let count = 120
        var answered = Array(repeating: [Int](), count: strangerCount)
        var calls: [Slot] = []
        try whileStopped {
            for number in 0..<count {
                for (index, stranger) in strangers.enumerated() {
                    let call = try stranger.bus.callAsync(ping(stranger.bus), timeout: .max) {
                        let isRefused = $0.isError
                        #expect(!isRefused)
                        answered[index].append(number)
                    }
                    calls.append(call)
                }
            }
            for stranger in strangers {
                try stranger.bus.flush()
                // The bus answers in order: it has passed on all calls.
                _ = try stranger.bus.owner(of: BusNames.service)
            }
        }
        for (index, stranger) in strangers.enumerated() {
            try stranger.wait("all answers") { answered[index].count == count }
            #expect(answered[index] == Array(0..<count))
        }
        calls.removeAll()
    }

    @Test("a path longer than any of ours is refused, from unknown and from known callers")
    func longPath() throws {
        let stranger = try daemon.client()
        let path = "/" + String(repeating: "a", count: 60_000)
        for _ in 0..<2 {
            let error = errorName {
                _ = try stranger.bus.call(
                    stranger.bus.newCall(
                        destination: BusNames.service, path: path, interface: "org.freedesktop.DBus.Peer",
                        member: "Ping"))
            }
            #expect(error == "org.freedesktop.DBus.Error.UnknownObject")
            #expect(try stranger.list() == [])
        }
    }
}
