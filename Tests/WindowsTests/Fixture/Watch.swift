import AppStateBus
import Glibc
import TestSupport
import Testing
import Windows

/// An observer, and the means to wait for what it sees.
final class Watch {
    let observer: any WindowObserver
    /// What it saw after each dispatch since the history was last cleared.
    private(set) var history: [[ObservedWindow]] = []

    private let loop: EventLoop?

    /// - Parameter loop: handles what the observer needs; nil: its own descriptor is enough.
    init(_ observer: any WindowObserver, loop: EventLoop? = nil) {
        self.observer = observer
        self.loop = loop
    }

    /// Makes an observer, and tries for five minutes: on a busy machine a compositor may stall for longer than
    /// an observer waits.
    static func patiently(
        loop: EventLoop? = nil, _ make: () throws -> any WindowObserver
    ) throws -> Watch {
        let deadline = ContinuousClock.now + .seconds(300)
        while true {
            do {
                return Watch(try make(), loop: loop)
            } catch ObserverFailure.unreachable where ContinuousClock.now < deadline {
                poll(nil, 0, 100)
            }
        }
    }

    /// Dispatches until `done`; fails after five minutes.
    func wait(_ what: String, until done: ([ObservedWindow]) -> Bool) throws {
        let deadline = ContinuousClock.now + .seconds(300)
        while !done(observer.windows) {
            guard ContinuousClock.now < deadline else {
                let seen = history.suffix(5).map { "\($0.map(\.picture))" }.joined(separator: "\n")
                throw TestFailure(
                    "\(what) was not seen; the last:\n\(seen)\nnow: \(observer.windows.map(\.picture))")
            }
            var ready = pollfd(fd: observer.descriptor, events: Int16(POLLIN), revents: 0)
            try loop?.runOnce(timeout: 100_000)
            if poll(&ready, 1, loop == nil ? 1_000 : 0) == 1 { try dispatch() }
        }
    }

    /// Waits until the windows are these, in any order, in the notation of `picture`.
    func wait(for pictures: Set<String>) throws {
        try wait("\(pictures.sorted())") { Set($0.map(\.picture)) == pictures }
    }

    /// Waits until the observer reports that the thing it watches has ended.
    func waitForEnd() throws {
        do {
            try wait("the end") { _ in false }
        } catch ObserverFailure.ended {}
    }

    /// Makes an application on Xwayland open a window and end: it is seen like any other.
    func expect(x11App app: WindowApp) throws {
        // It has started the X server, which accepts windows before they are managed.
        try app.ask("manager")
        _ = try app.open("Alpha", "The first")
        // labwc reports the instance, the others the class.
        try wait("the window") { $0.map { $0.appID.lowercased() } == ["alpha"] }
        #expect(observer.windows.first?.process == app.pid)
        app.process.kill(SIGKILL)
        try wait(for: [])
    }

    func dispatch() throws {
        try loop?.runOnce(timeout: 0)
        try observer.dispatch()
        history.append(observer.windows)
    }

    func forget() { history = [] }

    func window(_ appID: String) throws -> ObservedWindow {
        guard let window = observer.windows.first(where: { $0.appID == appID }) else {
            throw TestFailure("there is no window of \(appID)")
        }
        return window
    }
}

extension ObservedWindow {
    /// The application and its window's condition: `Alpha focused`, `Alpha` where it is only visible, `Alpha hidden`,
    /// `Alpha minimized`.
    var picture: String {
        appID + (focused ? " focused" : "") + (minimized ? " minimized" : visible ? "" : " hidden")
    }
}
