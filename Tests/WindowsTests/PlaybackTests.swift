import Foundation
import Glibc
import Linux
import TestSupport
import Testing

@testable import Windows
@testable import appstate_session

/// Which processes play sound, according to a real sound server.
@Suite("Playback", .serialized, .enabled(if: SoundServer.isAvailable, SoundServer.whatIsMissing))
struct PlaybackTests {
    @Test("a process that plays is known until it ends, also when it played before")
    func players() throws {
        let server = try SoundServer()
        let first = try server.player()
        let observer = try PlaybackObserver(path: server.socket)
        try observer.wait(for: [first.pid])
        let second = try server.player()
        try observer.wait(for: [first.pid, second.pid])
        first.kill(SIGKILL)
        try observer.wait(for: [second.pid])
        second.kill(SIGTERM)
        try observer.wait(for: [])
    }

    @Test("a process that records counts, and one that only measures how loud it is does not")
    func recorders() throws {
        let server = try SoundServer()
        let recorder = try Child(
            "pacat", ["--record", "--raw", "/dev/null"], environment: server.environment)
        let observer = try PlaybackObserver(path: server.socket)
        try observer.wait(for: [recorder.pid])
        let meter = try SoundClient(server.socket)
        try meter.record(corked: false, measuring: true)
        let other = try server.player()
        // The other one started later, so the meter has been reported already.
        try observer.wait(for: [recorder.pid, other.pid])
        let client = try SoundClient(server.socket)
        try client.record(corked: true, measuring: false)
        recorder.kill(SIGKILL)
        try observer.wait(for: [other.pid])
        try client.cork(false)
        try observer.wait(for: [other.pid, getpid()])
        try client.cork(true)
        try observer.wait(for: [other.pid])
        withExtendedLifetime(meter) {}
    }

    @Test(
        "policy does not suspend an application while it plays; sound servers start and end",
        .enabled(if: Station.isAvailable, Station.whatIsMissing),
        .enabled(if: Display.isAvailable, Display.whatIsMissing))
    func agent() throws {
        let display = try Display(try #require(WindowManager.present.first))
        let server = try SoundServer(isRunning: false)
        let station = try Station(configuration: "BackgroundGraceSec=0\n")
        try station.startAgent(environment: server.environment.merging(display.environment) { $1 })
        for _ in 0..<2 {
            try server.start()
            let parent = try Child(
                "sh", ["-c", "pacat --playback --raw /dev/zero & echo player $!; exec sleep 1000"],
                environment: server.environment)
            // A process that is suspended before it plays never gets to play.
            let player = try parent.waitForLine(containing: "player").split(separator: " ")[1]
            try station.agent?.waitForLine(containing: "audio pid \(player)")
            let path = try station.register("org.example.Player", parent.pid, suspension: "automatic")
            try station.wait("the objection") { try station.objections(to: path) == ["reported audio"] }
            try station.wait(for: path, toBe: "background")
            try server.end()
            try station.wait(for: path, toBe: "suspended")
        }
    }
}

/// A client of the sound server with one stream that never sends any sound.
private final class SoundClient {
    private let socket: Int32
    private var stream: UInt32 = 0
    private var records = false

    init(
        _ path: String, _ properties: [String: String] = ["application.process.id": "\(getpid())"]
    ) throws {
        socket = try LocalSocket.connect(to: path).release()
        var isOn: Int32 = 1
        setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &isOn, socklen_t(MemoryLayout<Int32>.size))
        _ = try ask(8) {
            $0.append(20)
            $0.append(bytes: [UInt8](repeating: 0, count: 256))
        }
        _ = try ask(9) { $0.append(properties) }
    }

    deinit { close(socket) }

    /// CREATE_PLAYBACK_STREAM.
    func open(corked: Bool) throws {
        var answer = try ask(3) { body in
            let none = UInt32.max
            // 16 bits, one channel, 8,000 Hz; mono.
            var bytes = Array(body.bytes) + [0x61, 3, 1] + TagStruct.bigEndian(8_000) + [0x6D, 1, 0]
            func append(_ number: UInt32) { bytes += [0x4C] + TagStruct.bigEndian(number) }
            func append(flags: [Bool]) { bytes += flags.map { $0 ? 0x31 : 0x30 } }
            append(none)
            bytes.append(0x4E)
            append(none)
            append(flags: [corked])
            for number in [none, none, none, 0] { append(number) }
            bytes += [0x76, 1] + TagStruct.bigEndian(0x10000)
            append(flags: [Bool](repeating: false, count: 9))
            body = TagStruct(bytes[...])
            body.append(["media.name": "silence"])
            bytes = Array(body.bytes)
            append(flags: [Bool](repeating: false, count: 7))
            body = TagStruct(bytes[...])
        }
        let number = answer.nextNumber()
        stream = try #require(number)
    }

    /// CREATE_RECORD_STREAM.
    ///
    /// - Parameter isMeter: as of PA_STREAM_PEAK_DETECT.
    func record(corked: Bool, measuring isMeter: Bool) throws {
        var answer = try ask(5) { body in
            let none = UInt32.max
            // 32-bit floating point numbers, one channel, 25 Hz; mono.
            var bytes = Array(body.bytes) + [0x61, 5, 1] + TagStruct.bigEndian(25) + [0x6D, 1, 0]
            func append(_ number: UInt32) { bytes += [0x4C] + TagStruct.bigEndian(number) }
            func append(flags: [Bool]) { bytes += flags.map { $0 ? 0x31 : 0x30 } }
            append(none)
            bytes.append(0x4E)
            append(none)
            append(flags: [corked])
            append(none)
            append(flags: [Bool](repeating: false, count: 7) + [isMeter, false])
            body = TagStruct(bytes[...])
            body.append(["media.name": "recording"])
            bytes = Array(body.bytes)
            append(none)
            append(flags: [Bool](repeating: false, count: 3))
            body = TagStruct(bytes[...])
        }
        let number = answer.nextNumber()
        stream = try #require(number)
        records = true
    }

    /// CORK_PLAYBACK_STREAM or CORK_RECORD_STREAM.
    func cork(_ isCorked: Bool) throws {
        let number = stream
        _ = try ask(records ? 58 : 41) { body in
            body.append(number)
            body = TagStruct((Array(body.bytes) + [isCorked ? 0x31 : 0x30])[...])
        }
    }

    private func ask(_ command: UInt32, _ fill: (inout TagStruct) -> Void) throws -> TagStruct {
        var body = TagStruct()
        body.append(command)
        body.append(UInt32(1))
        fill(&body)
        let header = [UInt32(body.bytes.count), .max, 0, 0, 0].flatMap(TagStruct.bigEndian)
        let packet = header + body.bytes
        guard write(socket, packet, packet.count) == packet.count else {
            throw TestFailure("the packet was not sent")
        }
        while true {
            let length = try read(20).prefix(4).reduce(0) { $0 << 8 | Int($1) }
            var answer = TagStruct(try read(length)[...])
            switch answer.nextNumber() {
            case 2?:
                guard answer.nextNumber() == 1 else { continue }
                return answer
            case 0?: throw TestFailure("command \(command) was refused: \(answer.bytes)")
            default: continue
            }
        }
    }

    private func read(_ count: Int) throws -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        guard count == 0 || recv(socket, &bytes, count, Int32(MSG_WAITALL)) == count else {
            throw TestFailure("the sound server sends nothing more")
        }
        return bytes
    }
}
