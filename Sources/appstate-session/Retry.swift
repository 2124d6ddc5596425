import AppStateBus

/// Attempts something again after pauses, each twice as long as the one before, up to a minute.
final class Retry {
    private let loop: EventLoop
    private let shortest: UInt64
    private var pause: UInt64
    private var timer: Timer?
    /// When the last attempt succeeded.
    private var success: UInt64?

    /// In microseconds.
    private static let longest: UInt64 = 60_000_000

    /// - Parameter shortest: the first pause, in microseconds.
    init(
        _ loop: EventLoop, after shortest: UInt64 = 1_000_000, _ attempt: @escaping () -> Void
    ) throws(BusFailure) {
        self.loop = loop
        self.shortest = shortest
        pause = shortest
        timer = try loop.timer(attempt)
    }

    /// If this lasts for longer than a minute, the next pause is short: a server may accept us and disconnect us each time.
    func hasSucceeded() { success = loop.now }

    /// What the attempts need may be there now.
    func reset() { pause = shortest }

    func schedule() {
        if let success, loop.now - success > Self.longest { reset() }
        success = nil
        timer?.arm(at: loop.now + pause)
        pause = min(2 * pause, Self.longest)
    }

    func cancel() { timer?.disarm() }
}
