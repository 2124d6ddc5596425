import AppStateBus
import Glibc
import Linux

/// Attempts something again after pauses, each twice as long as the one before, up to a minute.
final class Retry {
    private let loop: EventLoop
    private let shortest: UInt64
    private let socket: String?
    private let attempt: () -> Void
    private var pause: UInt64
    private var timer: Timer?
    /// Reports that the socket may have appeared, while another attempt is due.
    private var arrival: (watch: PathWatch, source: Source)?
    /// When the last attempt succeeded.
    private var success: UInt64?

    /// In microseconds.
    private static let longest: UInt64 = 60_000_000

    /// - Parameters:
    ///   - shortest: the first pause, in microseconds.
    ///   - socket: the path that a server's socket has: the next attempt is made when it appears. nil: there is none.
    init(
        _ loop: EventLoop, after shortest: UInt64 = 1_000_000, socket: String? = nil,
        _ attempt: @escaping () -> Void
    ) throws(BusFailure) {
        self.loop = loop
        self.shortest = shortest
        self.socket = socket
        self.attempt = attempt
        pause = shortest
        timer = try loop.timer(attempt)
    }

    /// If this lasts for longer than a minute, the next pause is short: a server may accept us and disconnect us each time.
    func hasSucceeded() {
        success = loop.now
        cancel()
    }

    /// What the attempts need may be there now.
    func reset() { pause = shortest }

    func schedule() {
        if let success, loop.now - success > Self.longest { reset() }
        success = nil
        if let socket {
            if arrival == nil { arrival = try? watch(socket) }
            if arrival != nil, access(socket, F_OK) != 0 { return }
        }
        timer?.arm(at: loop.now + pause)
        pause = min(2 * pause, Self.longest)
    }

    private func watch(_ socket: String) throws -> (watch: PathWatch, source: Source) {
        let watch = try PathWatch(path: socket)
        let source = try loop.watch(watch.descriptor) { [unowned self] _ in
            watch.dispatch()
            guard access(socket, F_OK) == 0 else { return }
            reset()
            attempt()
        }
        return (watch, source)
    }

    func cancel() {
        timer?.disarm()
        arrival = nil
    }
}
