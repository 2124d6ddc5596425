import AppStateBus
import AppStateContract
import Windows

/// Reports which processes own data that others may paste: a program that pastes asks the owner, and waits for it.
final class Selections {
    private let loop: EventLoop
    private let observer: SelectionObserver
    private let tell: (ExemptionReason, Set<Int32>) -> Void
    private var source: Source?
    private var timer: Timer?
    /// How often text had been selected at the last check.
    private var marks: UInt64?
    /// Text was selected a short while ago.
    private var isFresh = false

    /// How long selected text counts, in microseconds. Unlike a copy, a selection is often made in passing, and it
    /// lasts as long as the application lives.
    private static let longestMark: UInt64 = 120_000_000

    /// - Parameter tell: gets a reason, and all processes that have it, whenever they may have changed.
    init(
        loop: EventLoop, tell: @escaping (ExemptionReason, Set<Int32>) -> Void
    ) throws {
        self.loop = loop
        self.tell = tell
        observer = try SelectionObserver()
        timer = try loop.timer { [unowned self] in
            isFresh = false
            report()
        }
        source = try loop.watch(observer.descriptor) { [unowned self] _ in dispatch() }
        report()
    }

    func onStall(_ handler: @escaping (_ times: Int) -> Void) { observer.onStall(handler) }

    /// What is watched, for users.
    var subject: String { observer.subject }

    private func dispatch() {
        do throws(ObserverFailure) {
            try observer.dispatch()
            report()
        } catch {
            // The X server has ended; the observer of windows notices that, too.
            source?.cancel()
            tell(.clipboard, [])
            tell(.selection, [])
        }
    }

    private func report() {
        let marks = observer.changes[.primary] ?? 0
        if marks != self.marks {
            self.marks = marks
            isFresh = true
            timer?.arm(at: loop.now + Self.longestMark)
        }
        func owner(of selection: SelectionObserver.Selection) -> Set<Int32> {
            Set([observer.owners[selection]].compactMap(\.self))
        }
        tell(.clipboard, owner(of: .clipboard))
        tell(.selection, isFresh ? owner(of: .primary) : [])
    }
}
