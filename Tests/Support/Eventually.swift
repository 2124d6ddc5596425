public import AppStateBus
import Glibc

/// Polls for a condition that the kernel does not announce; false after five minutes, because a loaded machine may
/// give a test a tenth of a processor for that long.
///
/// Between two polls it rests for four times as long as the last poll took, 1 to 50 ms, because the awaited work
/// needs the processor, too.
public func eventually(_ condition: () throws -> Bool) rethrows -> Bool {
    let clock = ContinuousClock()
    let deadline = clock.now + .seconds(300)
    while true {
        let begin = clock.now
        if try condition() { return true }
        let end = clock.now
        guard end < deadline else { return false }
        let rest = min(max((end - begin) * 4, .milliseconds(1)), .milliseconds(50))
        poll(nil, 0, Int32(rest / .milliseconds(1)))
    }
}

extension EventLoop {
    /// Handles events until the condition holds.
    ///
    /// - Throws: `TestFailure` after five minutes.
    public func run(_ what: @autoclosure () -> String, until done: () throws -> Bool) throws {
        let deadline = ContinuousClock.now + .seconds(300)
        while try !done() {
            guard ContinuousClock.now < deadline else { throw TestFailure("timed out waiting for \(what())") }
            try runOnce(timeout: 100_000)
        }
    }
}
