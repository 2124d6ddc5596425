import Glibc
import TestSupport
import Windows

extension SoundObserver {
    /// Waits until these processes play, and no others.
    func wait(for players: Set<Int32>) throws {
        let deadline = ContinuousClock.now + .seconds(300)
        while self.players != players {
            guard ContinuousClock.now < deadline else {
                throw TestFailure("\(self.players) play instead of \(players)")
            }
            var ready = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            if poll(&ready, 1, 1_000) == 1 { try dispatch() }
        }
    }
}
