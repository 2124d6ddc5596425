import Glibc
import TestSupport
import Testing
import Windows

/// An observer, and whoever waits for what it sees.
final class Watch {
    let observer: any WindowObserver
    /// What it saw after each dispatch, since it was asked to forget.
    private(set) var history: [[ObservedWindow]] = []

    init(_ observer: any WindowObserver) { self.observer = observer }

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
            if poll(&ready, 1, 1_000) == 1 { try dispatch() }
        }
    }

    /// Waits until the windows are these, in any order, each as `picture` has it.
    func wait(for pictures: Set<String>) throws {
        try wait("\(pictures.sorted())") { Set($0.map(\.picture)) == pictures }
    }

    /// Waits until the observer says that what it watches has ended.
    func waitForEnd() throws {
        do {
            try wait("the end") { _ in false }
        } catch ObserverFailure.ended {}
    }

    /// Has an application on Xwayland open a window, and go: it is seen like any other.
    func expect(x11App app: WindowApp) throws {
        // It has started the X server, which takes windows before anybody manages them.
        try app.ask("manager")
        _ = try app.open("Alpha", "The first")
        // The instance on labwc, the class elsewhere.
        try wait("the window") { $0.map { $0.appID.lowercased() } == ["alpha"] }
        #expect(observer.windows.first?.process == app.pid)
        app.process.kill(SIGKILL)
        try wait(for: [])
    }

    func dispatch() throws {
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
    /// The application and what it is: `Alpha focused`, `Alpha` where it is visible and no more, `Alpha hidden`,
    /// `Alpha minimized`.
    var picture: String {
        appID + (focused ? " focused" : "") + (minimized ? " minimized" : visible ? "" : " hidden")
    }
}
