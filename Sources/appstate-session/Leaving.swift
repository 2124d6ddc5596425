import AppStateBus
import Windows

/// Makes an application leave the front before it is suspended, so that it gives up the pointer and the keyboard; pauses,
/// if it does that then; and has its last frame drawn. The focus of windows that stay is given back once they are stopped.
final class Leaving {
    private let loop: EventLoop
    private let observer: () -> (any WindowObserver)?
    private let windows: (Int32) -> [ObservedWindow]
    private let minimize: ([ObservedWindow]) -> Void
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

    /// - Parameter windows: returns the windows of an application by its main process.
    init(
        loop: EventLoop, observer: @escaping () -> (any WindowObserver)?,
        windows: @escaping (Int32) -> [ObservedWindow], minimize: @escaping ([ObservedWindow]) -> Void
    ) throws(BusFailure) {
        self.loop = loop
        self.observer = observer
        self.windows = windows
        self.minimize = minimize
        timer = try loop.timer { [unowned self] in look() }
    }

    /// - Parameters:
    ///   - isMinimizing: its windows are minimized; otherwise they stay.
    ///   - done: called once, at the latest after 100 ms.
    func leave(_ pid: Int32, isMinimizing: Bool, _ done: @escaping () -> Void) {
        let shown = windows(pid).filter { !$0.minimized }
        if isMinimizing {
            minimize(shown)
        } else {
            guard observer()?.takeFocus(from: shown.map(\.number)) == true else { return done() }
            borrowed = (pid, loop.now + Self.stop)
        }
        departures.append(
            Departure(pid: pid, isMinimizing: isMinimizing, begun: loop.now, done: done))
        look()
    }

    /// Takes the suspended applications.
    func follow(_ suspended: Set<Int32>) {
        if let borrowed, suspended.contains(borrowed.pid) || loop.now >= borrowed.until {
            self.borrowed = nil
            observer()?.giveFocusBack()
        }
    }

    /// Whether an application that is suspended still holds the pointer or the keyboard, and could be seen.
    func isGrabbing(_ pid: Int32) -> Bool {
        let shown = windows(pid).filter(\.visible)
        return !shown.isEmpty && observer()?.isGrabbed(for: shown.map(\.number)) == true
    }

    private func look() {
        let gone = departures.filter(hasLeft)
        departures.removeAll(where: hasLeft)
        for departure in gone { departure.done() }
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
