import AppStateBus
import Desktop
import Glibc
import Linux
import Systemd
import Windows

/// The windows of this session's display server. When that has ended, or has disconnected us, another one is looked for.
final class Display {
    weak var agent: Agent?
    private let loop: EventLoop
    private let journal: Journal
    private let session: SessionBus
    private let entries: DesktopEntries
    private var observer: (any WindowObserver)?
    private var source: Source?
    /// The windows; nil: they are not known.
    private(set) var windows: [ReportedWindow]?
    /// The processes in which the user may have acted a moment ago, each with the time until which that counts.
    private var front: [Int32: UInt64] = [:]
    private var names: [Int32: String] = [:]
    private var interruption: Timer?
    private var interrupted: UInt64?
    private var lastSearch: UInt64?
    private let proc = Proc()

    /// If a display server answers and ends again and again within this time, the agent gives up; microseconds.
    private static let searchesApart: UInt64 = 10_000_000
    /// How long an observer may be blind, in microseconds, before its last windows are no longer valid.
    private static let longestInterruption: UInt64 = 1_000_000
    /// The display server reports the focus on one connection and a copy on another, so either may come first; microseconds.
    private static let overlap: UInt64 = 500_000

    /// - Parameter session: the session bus, on which the windows of some desktops are reported.
    init(
        loop: EventLoop, journal: Journal, session: SessionBus, entries: DesktopEntries
    ) throws(BusFailure) {
        self.session = session
        self.entries = entries
        self.loop = loop
        self.journal = journal
        interruption = try loop.timer { [unowned self] in update() }
    }

    /// Finds the display server, and watches it.
    func start() throws {
        let found = try DisplayServer.observer(session: session, entries)
        observer = found
        found.learn(names: names)
        found.onStall { [unowned self] in agent?.displayStalled($0) }
        source = try loop.watch(found.descriptor) { [unowned self] _ in dispatch() }
        agent?.displayFound(found.system)
        journal.log(.info, "watching \(subject)")
        update()
    }

    /// Watches no longer, and takes back what was installed in the display server.
    func stop() {
        source?.cancel()
        (source, observer) = (nil, nil)
    }

    var subject: String { observer?.subject ?? "nothing" }
    var desktopProcesses: Set<Int32> { observer?.desktopProcesses ?? [] }
    /// The windows as the display server shows them.
    var observed: [ObservedWindow] { observer?.windows ?? [] }
    /// The processes of windows that belong to one process only.
    var owners: Set<Int32> {
        Set(observed.filter { !$0.isShared }.compactMap(\.process))
    }
    /// The processes in which the user may have acted a moment ago.
    var frontProcesses: Set<Int32> { Set(front.filter { loop.now < $0.value }.keys) }

    /// Sets the names under which all processes are registered.
    func learn(names: [Int32: String]) {
        guard names != self.names else { return }
        self.names = names
        observer?.learn(names: names)
        update()
    }

    // MARK: Windows

    private func dispatch() {
        let before = (observer?.windows, observer?.desktopProcesses)
        do throws(ObserverFailure) {
            try observer?.dispatch()
            // On X11, much that wakes us changes nothing: a window moves, a menu opens.
            if observer?.system == .x11, before == (observer?.windows, observer?.desktopProcesses) { return }
            update()
        } catch {
            journal.log(.notice, error.description)
            lose()
        }
    }

    private func update() {
        guard let observer else { return }
        if observer.isBlind, windows != nil {
            let since = interrupted ?? loop.now
            interrupted = since
            guard loop.now >= since + Self.longestInterruption else {
                interruption?.arm(at: since + Self.longestInterruption)
                return
            }
        }
        interrupted = nil
        for notice in observer.takeNotices() { journal.log(.notice, notice) }
        front = front.mapValues { min($0, loop.now + Self.overlap) }.filter { loop.now < $0.value }
        for process in observer.windows.filter(\.focused).compactMap(\.process) { front[process] = .max }
        let present = observer.windows.compactMap { ReportedWindow($0, of: observer.system) }
        windows = observer.isBlind ? nil : ReportedWindow.withOneFocus(present)
        agent?.windowsChanged()
    }

    /// The server may have disconnected us, or have been restarted.
    private func lose() {
        stop()
        agent?.displayLost()
        do {
            guard lastSearch.map({ loop.now - $0 > Self.searchesApart }) ?? true else {
                // The server runs, and has disconnected us. Its windows still exist, and the next agent starts again.
                agent?.end("the display server has ended the connection twice", code: 1)
                return
            }
            lastSearch = loop.now
            try start()
        } catch  where DisplayServer.mayReturn(after: error) {
            agent?.end("the windows can no longer be watched: \(error)", code: 1)
        } catch {
            windows = []
            agent?.windowsChanged()
            agent?.end("nothing left to watch: \(error)", code: 0)
        }
    }

    // MARK: Acting

    /// The windows of an application. Applications that were started from it have windows of their own.
    func windows(of pid: Int32, among registered: Set<Int32>) -> [ObservedWindow] {
        observed.filter { window in
            !window.isShared
                && window.process.flatMap { proc.application(of: $0, among: registered) } == pid
        }
    }

    func minimize(_ windows: [ObservedWindow]) {
        do throws(ObserverFailure) {
            try observer?.minimize(windows.map(\.number))
        } catch {
            journal.log(.notice, "\(error)")
        }
    }

    /// Takes the focus away from these windows, for a moment.
    ///
    /// - Returns: whether one of them had it, and it can be taken.
    func takeFocus(from windows: [ObservedWindow]) -> Bool {
        observer?.takeFocus(from: windows.map(\.number)) == true
    }

    /// Gives back the focus that `takeFocus` took.
    func giveFocusBack() { observer?.giveFocusBack() }

    /// Whether the owner of these windows has grabbed the pointer or the keyboard.
    func isGrabbed(for windows: [ObservedWindow]) -> Bool {
        observer?.isGrabbed(for: windows.map(\.number)) == true
    }

    /// Brings a window to the front, by its number among all observers.
    func raise(_ window: UInt64, _ token: String?) throws(ObserverFailure) {
        guard let observer, let own = observer.system.window(numbered: window) else {
            throw .unreachable("there is no display server")
        }
        try observer.activate([own], token: token)
    }
}
