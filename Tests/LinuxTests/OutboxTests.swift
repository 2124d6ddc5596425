import Glibc
import TestSupport
import Testing

@testable import Linux

@Suite("Outbox")
struct OutboxTests {
    @Test(
        "jobs run in their order, and those for which there is no room are counted", .timeLimit(.minutes(5)))
    func order() throws {
        let outbox = try Outbox(name: "test", limit: 3)
        let pipe = try PipeEnds()
        let gate = try PipeEnds()
        let (written, passed) = (pipe.takeWrite(), gate.read)
        #expect(
            outbox.post {
                var byte: UInt8 = 0
                _ = read(passed, &byte, 1)
            })
        for letter in "ab".utf8 {
            #expect(
                outbox.post {
                    var letter = letter
                    _ = write(written, &letter, 1)
                })
        }
        #expect(!outbox.post {})
        #expect(!outbox.flush(milliseconds: 0))
        close(gate.takeWrite())
        #expect(outbox.flush(milliseconds: 300_000))
        #expect(outbox.takeRefused() == 1)
        #expect(outbox.takeRefused() == 0)
        close(written)
        var bytes = [UInt8](repeating: 0, count: 3)
        #expect(read(pipe.read, &bytes, 3) == 2)
        #expect(bytes == Array("ab".utf8) + [0])
    }
}
