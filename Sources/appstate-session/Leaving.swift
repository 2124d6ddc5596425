import AppStateBus
import Windows

/// Makes an application leave the front before it is suspended, so that it gives up the pointer and the keyboard; pauses,
/// if it does that then; and has its last frame drawn. The focus of windows that stay is given back once they are stopped.
final class Leaving {
    private let loop: EventLoop
    private let display: Display
    private let daemon: DaemonConnection
    private var timer: Timer?
    private var departures: [Departure] = []
    /// The main process of the application whose focus is borrowed, and until when.
    private var borrowed: (pid: Int32, until: UInt64)?

    private struct Departure {
        let pid: Int32
        let isMinimizing: Bool
        let begun: UInt64
        let done: () -> Void
    }

    /// Microseconds. How long clients have to handle the loss of the focus, and how long is waited for their grabs and
    /// for minimized windows; how long it takes at most until the application is stopped.
    private static let (shortest, longest, stop): (UInt64, UInt64, UInt64) = (40_000, 100_000, 1_000_000)
    private static let pause: UInt64 = 5_000

    init(loop: EventLoop, display: Display, daemon: DaemonConnection) throws(BusFailure) {
        self.loop = loop
        self.display = display
        self.daemon = daemon
        timer = try loop.timer { [unowned self] in proceed() }
    }

    private func windows(_ pid: Int32) -> [ObservedWindow] {
        display.windows(of: pid, among: daemon.applications.registered)
    }

    /// - Parameters:
    ///   - isMinimizing: its windows are minimized; otherwise they stay.
    ///   - done: called once, at the latest after 100 ms.
    func leave(_ pid: Int32, isMinimizing: Bool, _ done: @escaping () -> Void) {
        let shown = windows(pid).filter { !$0.minimized }
        if isMinimizing {
            display.minimize(shown)
        } else {
            guard display.takeFocus(from: shown) else { return done() }
            borrowed = (pid, loop.now + Self.stop)
        }
        departures.append(
            Departure(pid: pid, isMinimizing: isMinimizing, begun: loop.now, done: done))
        proceed()
    }

    /// Takes the suspended applications.
    func follow(_ suspended: Set<Int32>) {
        if let borrowed, suspended.contains(borrowed.pid) || loop.now >= borrowed.until {
            self.borrowed = nil
            display.giveFocusBack()
        }
    }

    /// Whether an application that is suspended still holds the pointer or the keyboard, and could be seen.
    func isGrabbing(_ pid: Int32) -> Bool {
        let shown = windows(pid).filter(\.visible)
        return !shown.isEmpty && display.isGrabbed(for: shown)
    }

    private func proceed() {
        let all = departures
        departures = []
        for departure in all {
            if hasLeft(departure) { departure.done() } else { departures.append(departure) }
        }
        follow([])
        if !departures.isEmpty {
            timer?.arm(at: loop.now + Self.pause)
        } else if let borrowed {
            timer?.arm(at: borrowed.until)
        }
    }

    private func hasLeft(_ departure: Departure) -> Bool {
        let time = loop.now - departure.begun
        if time >= Self.longest { return true }
        if departure.isMinimizing { return !windows(departure.pid).contains(where: \.visible) }
        return time >= Self.shortest && !isGrabbing(departure.pid)
    }
}
