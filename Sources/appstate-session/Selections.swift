import AppStateBus
import AppStateContract
import Windows

/// Tells who owns what others may paste: who pastes asks the owner, and waits for it.
final class Selections {
    private let loop: EventLoop
    private let observer: SelectionObserver
    private let tell: (ExemptionReason, Set<Int32>) -> Void
    private var source: Source?
    private var timer: Timer?
    /// How often text had been marked when it was looked last.
    private var marks: UInt64?
    /// Text was marked a short while ago.
    private var isFresh = false

    /// How long marked text counts, in microseconds. Unlike what was copied, it is marked by the way, and stays marked as
    /// long as the application lives.
    private static let longestMark: UInt64 = 120_000_000

    /// - Parameter tell: gets a reason, and all processes that have it, whenever they may be others.
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

    /// What is watched, for a person.
    var subject: String { observer.subject }

    private func dispatch() {
        do throws(ObserverFailure) {
            try observer.dispatch()
            report()
        } catch {
            // The X server has ended, which the observer of windows is told of too.
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
