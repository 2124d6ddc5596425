import AppStateBus
import Foundation
import Glibc
import TestSupport
import Testing
import Windows

/// Measurements, not tests: the cost of a change of focus on each desktop, for `make bench-windows`. Prints Markdown
/// and judges nothing.
@Suite(
    "Figures of the session agent", .serialized,
    .enabled(
        if: ProcessInfo.processInfo.environment["APPSTATED_FIGURES"] != nil,
        "figures, no test: make bench-windows"),
    .enabled(if: Station.isAvailable, Station.whatIsMissing))
struct WindowFigures {
    private static let changes = 200
    private static let burst = 1_000
    private static let applications = 10
    private static let windowsEach = 20
    /// Seconds.
    private static let idle = 20

    @Test("from the window manager's change to a subscriber's signal, each desktop")
    func latency() throws {
        print(
            "\n| Desktop | focus changes | from when an observer sees it: median, p99",
            "| from the request: median, p99 |\n| --- | --- | --- | --- |")
        for desk in try FigureDesk.all() {
            let desk = try desk()
            let station = try Station()
            try station.startAgent([], environment: desk.environment, uid: desk.uid)
            let watch = try desk.watch()
            var paths: [String] = []
            for (index, name) in ["Alpha", "Beta"].enumerated() {
                let app = try desk.open(name)
                try watch.wait("window \(name)") { $0.contains { $0.appID == name } }
                try desk.focus(index)
                paths.append(try station.register("org.example.\(name)", app.pid))
                try station.wait(for: paths[paths.count - 1], toBe: "active")
            }
            let times = try (0..<Self.changes).map { number in
                let index = number % 2
                return try station.time(from: watch, of: ["Alpha", "Beta"][index], to: paths[index]) {
                    try desk.focus(index)
                }
            }
            print(
                "| \(desk.name) | \(times.count) | \(Self.text(times.map(\.sinceSeen))) |",
                "\(Self.text(times.map(\.sinceRequest))) |")
        }
    }

    @Test(
        "a burst over 200 windows, and idle with them",
        .enabled(if: Display.isAvailable, Display.whatIsMissing))
    func burst() throws {
        print(
            "\n| Window manager | focus changes asked for | agent's CPU time each | context switches idle,",
            "\(Self.idle) s |\n| --- | --- | --- | --- |")
        for manager in WindowManager.present {
            let display = try Display(manager)
            let station = try Station()
            try station.startAgent([], environment: display.environment)
            let agent = try #require(station.agent).pid
            let apps = try (0..<Self.applications).map { _ in try display.app() }
            let paths = try apps.enumerated().map { try station.register("org.example.App\($0)", $1.pid) }
            let windows = try apps.map {
                try $0.ask("open-many \(Self.windowsEach) App").split(separator: " ").map(String.init)
            }
            // The window manager executes the requests of one client in order: once this one is done, all are. The
            // server may handle requests of two clients in the wrong order.
            let last = try display.app()
            let lastPath = try station.register("org.example.Last", last.pid)
            let lastWindow = try last.open("Last")
            try display.run("xdotool", ["windowactivate", "--sync", windows[0][0]])
            try station.wait(for: paths[0], toBe: "active")
            let order = (0..<Self.burst).map {
                windows[$0 % Self.applications][$0 / Self.applications % Self.windowsEach]
            }
            let before = try Self.cpuTime(of: agent)
            try apps[0].ask("activate \(Self.burst + 1) \(order.joined(separator: " ")) \(lastWindow)")
            try station.wait(for: lastPath, toBe: "active")
            // The agent reads the newest value first; the earlier events reach it later.
            var switches = try Self.switches(of: agent)
            var woken: Int
            repeat {
                sleep(1)
                woken = try Self.switches(of: agent) - switches
                switches += woken
            } while woken > 0
            let taken = try Self.cpuTime(of: agent) - before
            sleep(UInt32(Self.idle))
            woken = try Self.switches(of: agent) - switches
            print("| \(manager) | \(Self.burst) | \(taken / UInt64(Self.burst) / 1_000) µs | \(woken) |")
        }
    }

    private static func text(_ nanoseconds: [Int64]) -> String {
        let sorted = nanoseconds.sorted().map { Double($0) / 1_000_000 }
        return String(format: "%.1f ms, %.1f ms", sorted[sorted.count / 2], sorted[sorted.count * 99 / 100])
    }

    /// Nanoseconds on a processor, for all its threads: proc_schedstat, Documentation/scheduler/sched-stats.rst.
    private static func cpuTime(of pid: Int32) throws -> UInt64 {
        let text = try String(contentsOfFile: "/proc/\(pid)/schedstat", encoding: .utf8)
        return text.split(separator: " ").first.flatMap { UInt64($0) } ?? 0
    }

    private static func switches(of pid: Int32) throws -> Int {
        try String(contentsOfFile: "/proc/\(pid)/status", encoding: .utf8).split(separator: "\n")
            .filter { $0.contains("ctxt_switches") }
            .reduce(0) { $0 + (Int($1.split(separator: "\t").last ?? "") ?? 0) }
    }
}

/// A desktop with two applications that take the focus in turn.
final class FigureDesk {
    let name: String
    let environment: [String: String?]
    let uid: UInt32?
    let watch: () throws -> Watch
    private let start: (String) throws -> WindowApp
    private let request: (FigureDesk, Int) throws -> Void
    fileprivate var apps: [WindowApp] = []
    fileprivate var windows: [UInt32] = []

    private init(
        _ name: String, _ environment: [String: String?], uid: UInt32? = nil,
        watch: @escaping () throws -> Watch,
        start: @escaping (String) throws -> WindowApp,
        request: @escaping (FigureDesk, Int) throws -> Void
    ) {
        self.name = name
        self.environment = environment
        self.uid = uid
        self.watch = watch
        self.start = start
        self.request = request
    }

    /// An application with a window of that name.
    func open(_ name: String) throws -> WindowApp {
        let app = try start(name)
        windows.append(try app.open(name, name))
        apps.append(app)
        return app
    }

    /// Requests the focus for one of them.
    func focus(_ index: Int) throws { try request(self, index) }

    /// Each installed desktop; they are started one after the other.
    static func all() throws -> [() throws -> FigureDesk] {
        var desks: [() throws -> FigureDesk] = []
        if Display.isAvailable {
            desks += WindowManager.present.map { manager in
                {
                    let display = try Display(manager)
                    return FigureDesk(
                        "X11, \(manager)", display.environment, watch: display.watch,
                        start: { _ in try display.app() },
                        request: { try $0.apps[$1].ask("activate 1 \($0.windows[$1])") })
                }
            }
        }
        if Tiler.isAvailable {
            desks += Tiler.Kind.present.map { kind in
                {
                    let tiler = try Tiler(kind)
                    return FigureDesk(
                        "IPC, \(kind)", tiler.environment, uid: tiler.uid, watch: tiler.watch,
                        start: { _ in try tiler.app() },
                        request: { try tiler.command("[class=\(["Alpha", "Beta"][$1])] focus") })
                }
            }
        }
        if Compositor.isAvailable {
            desks += Compositor.Kind.present.map { kind in
                {
                    let compositor = try Compositor(kind)
                    return FigureDesk(
                        "foreign-toplevel, \(kind)", compositor.environment, uid: compositor.uid,
                        watch: compositor.watch, start: { try compositor.app($0) },
                        request: { try $0.apps[$1].ask("bar activate \(["Alpha", "Beta"][$1])") })
                }
            }
        }
        if KWin.isAvailable {
            desks += [false, true].map { isRefused in
                {
                    let kwin = isRefused ? try KWin.refusing() : try KWin()
                    return FigureDesk(
                        isRefused ? "KWin, by a script" : "Plasma, KWin", kwin.environment,
                        watch: { isRefused ? try kwin.scriptWatch() : try kwin.watch() },
                        start: { _ in try kwin.app() },
                        request: { try $0.apps[$1].ask("bar activate \(["Alpha", "Beta"][$1])") })
                }
            }
        }
        if GnomeShell.isAvailable {
            desks.append {
                let shell = try GnomeShell()
                // GNOME Shell focuses each new window; from then on its keys move the focus between the two.
                var focused = -1
                return FigureDesk(
                    "GNOME Shell", shell.environment, watch: shell.watch,
                    start: { _ in
                        focused += 1
                        return try shell.app()
                    },
                    request: { _, index in
                        if index != focused { try shell.press(.alt, .tab) }
                        focused = index
                    })
            }
        }
        return desks
    }
}

extension Station {
    /// Moves the focus. Returns the nanoseconds until the application is announced as active, from the moment an
    /// observer in this process sees the focus and from the request.
    fileprivate func time(
        from watch: Watch, of appID: String, to path: String, _ request: () throws -> Void
    ) throws -> (sinceSeen: Int64, sinceRequest: Int64) {
        var seen: Int64?
        var heard: Int64?
        while try loop.runOnce(timeout: 0) {}
        let source = try loop.watch(watch.observer.descriptor) { _ in
            try? watch.dispatch()
            if seen == nil, watch.observer.windows.contains(where: { $0.appID == appID && $0.focused }) {
                seen = Self.now
            }
        }
        defer { source.cancel() }
        forget()
        let began = Self.now
        try request()
        try wait("\(appID) to be seen and active") {
            if heard == nil, self.walk(of: path).last?.hasSuffix("→active") == true { heard = Self.now }
            return seen != nil && heard != nil
        }
        let end = heard ?? 0
        return (max(end - (seen ?? 0), 0), end - began)
    }

    private static var now: Int64 {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
    }
}
