import AppStateBus
import AppStateContract
import Systemd
import Windows

/// Reports which processes own data that others may paste: a program that pastes asks the owner, and waits for it.
final class Selections: Watcher {
    private let loop: EventLoop
    private let journal: Journal
    private let make: (_ isAgain: Bool) throws(ObserverFailure) -> any SelectionObserver
    private let tell: (ObjectionReason, Set<Int32>) -> Void
    private let stall: (_ times: Int) -> Void
    private var observer: any SelectionObserver
    private var source: Source?
    private var timer: Timer?
    private var retry: Retry?
    /// How often text had been selected at the last check.
    private var marks: UInt64?
    /// Until when the text that was selected last counts, in microseconds of the loop's clock.
    private var freshUntil: UInt64 = 0

    /// How long selected text counts, in microseconds. Unlike a copy, a selection is often made in passing, and it
    /// lasts as long as the application lives.
    private static let longestMark: UInt64 = 120_000_000

    /// - Parameters:
    ///   - make: connects to the display server, for the first time or again. The agent waits for it.
    ///   - stall: as of `SelectionObserver.onStall`.
    ///   - tell: gets a reason, and all processes that have it, whenever they may have changed.
    init(
        loop: EventLoop, journal: Journal,
        make: @escaping (_ isAgain: Bool) throws(ObserverFailure) -> any SelectionObserver,
        stall: @escaping (_ times: Int) -> Void,
        tell: @escaping (ObjectionReason, Set<Int32>) -> Void
    ) throws {
        self.loop = loop
        self.journal = journal
        self.make = make
        self.tell = tell
        self.stall = stall
        observer = try make(false)
        timer = try loop.timer { [unowned self] in report() }
        // If the display server has disconnected only this observer, another one replaces it.
        retry = try Retry(loop, after: 10_000_000) { [unowned self] in connectAgain() }
        try watch()
    }

    private func watch() throws(BusFailure) {
        journal.log(.info, "watching \(observer.subject)")
        observer.onStall(stall)
        source = try loop.watch(observer.descriptor) { [unowned self] _ in dispatch() }
        report()
    }

    private func connectAgain() {
        do {
            observer = try make(true)
            marks = nil
            try watch()
            retry?.hasSucceeded()
        } catch {
            if case .unsupported? = error as? ObserverFailure { return journal.log(.notice, "\(error)") }
            journal.log(.debug, "\(error)")
            retry?.schedule()
        }
    }

    private func dispatch() {
        do throws(ObserverFailure) {
            try observer.dispatch()
            report()
        } catch {
            // Usually the display server has ended, which the observer of windows notices, too. This object goes then.
            journal.log(.notice, "\(error)")
            source?.cancel()
            timer?.disarm()
            tell(.clipboard, [])
            tell(.selection, [])
            retry?.schedule()
        }
    }

    private func report() {
        let marks = observer.changes[.primary] ?? 0
        if marks != self.marks {
            self.marks = marks
            freshUntil = loop.now + Self.longestMark
        }
        let owners = observer.owners
        let marked = loop.now < freshUntil ? owners[.primary] ?? [] : []
        // Without an owner nothing ends, so nothing has to wake the agent.
        if marked.isEmpty { timer?.disarm() } else { timer?.arm(at: freshUntil) }
        // Suspended, the manager would lose what an application has copied that exits.
        tell(.clipboard, (owners[.clipboard] ?? []).union(owners[.clipboardManager] ?? []))
        tell(.selection, marked)
    }
}
