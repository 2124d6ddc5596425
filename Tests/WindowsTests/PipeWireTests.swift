import Foundation
import Glibc
import TestSupport
import Testing
import Windows

/// Which processes have a running node in PipeWire's graph, according to a real PipeWire and its session manager.
@Suite("PipeWire", .serialized, .enabled(if: PipeWireServer.isAvailable, PipeWireServer.whatIsMissing))
struct PipeWireTests {
    @Test("what plays counts, and so does a filter that its sound goes through, until it ends")
    func players() throws {
        let server = try PipeWireServer()
        let observer = try PipeWireObserver(path: server.socket)
        let filter = try server.start(
            "pw-loopback",
            [
                "--capture-props=media.class=Audio/Sink node.name=filter",
                "--playback-props=node.target=quiet",
            ])
        let player = try server.start("pw-play", ["--target", "filter", server.silence])
        try observer.wait(for: [player.pid, filter.pid])
        player.kill(SIGKILL)
        try observer.wait(for: [filter.pid])
        filter.kill(SIGKILL)
        try observer.wait(for: [])
    }

    @Test("an observer sees what has begun before, and notices the end of the server")
    func later() throws {
        let server = try PipeWireServer()
        let player = try server.start("pw-play", ["--target", "quiet", server.silence])
        let observer = try PipeWireObserver(path: server.socket)
        try observer.wait(for: [player.pid])
        try server.end()
        #expect(throws: ObserverFailure.self) { try observer.wait(for: [1]) }
        #expect(throws: ObserverFailure.self) { _ = try PipeWireObserver(path: server.socket) }
    }
}

/// PipeWire with its session manager and a sink without hardware, in a directory of its own.
private final class PipeWireServer {
    private let scratch: Scratch
    private let bus: SessionBus
    private var processes: [Child] = []

    private static let programs = ["pipewire", "wireplumber", "pw-cli", "pw-loopback", "pw-play"]
    static let isAvailable = programs.allSatisfy { Programs.inPath($0) != nil }
    static let whatIsMissing: Comment = "needs pipewire, wireplumber and their tools: scripts/setup test"

    init() throws {
        scratch = try Scratch("pipewire")
        bus = try SessionBus()
        processes.append(try start("pipewire", []))
        try wait("the socket") { access(socket, F_OK) == 0 }
        processes.append(try start("wireplumber", []))
        let sink =
            "{ factory.name=support.null-audio-sink node.name=quiet media.class=Audio/Sink object.linger=true"
            + " audio.position=[FL FR] }"
        _ = try start("pw-cli", ["create-node", "adapter", sink]).waitForExit()
        // A WAV file of silence: 48,000 frames of one channel for each of 600 seconds.
        let length = UInt32(48_000 * 2 * 600)
        var header = Data("RIFF".utf8)
        func add(_ value: UInt32, _ count: Int) {
            header += withUnsafeBytes(of: value.littleEndian) { Data($0.prefix(count)) }
        }
        add(length + 36, 4)
        header += Data("WAVEfmt ".utf8)
        for (value, count) in [(16, 4), (1, 2), (1, 2), (48_000, 4), (96_000, 4), (2, 2), (16, 2)]
            as [(UInt32, Int)]
        {
            add(value, count)
        }
        header += Data("data".utf8)
        add(length, 4)
        try header.write(to: URL(fileURLWithPath: silence))
        guard truncate(silence, off_t(length) + 44) == 0 else { throw TestFailure("truncate") }
    }

    deinit { try? end() }

    private var directory: String { scratch.path }
    var socket: String { directory + "/pipewire-0" }
    var silence: String { directory + "/silence.wav" }

    func start(_ program: String, _ arguments: [String]) throws -> Child {
        try Child(
            program, arguments,
            environment: [
                "XDG_RUNTIME_DIR": directory, "HOME": directory, "PIPEWIRE_REMOTE": nil,
                "PIPEWIRE_RUNTIME_DIR": nil,
                "DBUS_SESSION_BUS_ADDRESS": bus.address, "DISPLAY": nil,
            ])
    }

    func end() throws {
        for process in processes.reversed() { try process.end() }
        processes = []
    }

    private func wait(_ what: String, _ isDone: () -> Bool) throws {
        let deadline = ContinuousClock.now + .seconds(300)
        while !isDone() {
            guard ContinuousClock.now < deadline else { throw TestFailure("\(what) does not come") }
            poll(nil, 0, 10)
        }
    }
}
