import AppStateContract
import Testing

@testable import LifeCycle

@Suite("Progress of a termination")
struct TerminationTests {
    private enum Event: CaseIterable {
        case acknowledged, acknowledgedOther, hurried, voided, soon, atExit, atKill
    }

    /// SIGTERM is due at 20, SIGKILL at 40.
    private static let begins: [Termination] = [
        .announced(.terminated, serial: 3, exit: 20, kill: 40),
        .announced(.reclaimed, serial: 3, exit: 20, kill: nil),
        .announced(.terminated, serial: 3, exit: nil, kill: nil),
        .atOnce(.forceQuit),
    ]

    /// All histories of this length.
    private static func histories(_ length: Int) -> [[Event]] {
        guard length > 0 else { return [[]] }
        return histories(length - 1).flatMap { history in Event.allCases.map { history + [$0] } }
    }

    @Test(
        "in every history SIGTERM is ordered once, when due or acknowledged, and SIGKILL once, after it"
    )
    func everyHistory() {
        for begin in Self.begins {
            for history in Self.histories(5) { play(history, begin) }
        }
    }

    private func play(_ history: [Event], _ begin: Termination) {
        var termination = begin
        var now: Microseconds = 10
        var orders: [Termination.Order] = []
        var isAwaited = true
        var isAsked = false
        let comment: Comment = "\(begin): \(history)"
        for event in history {
            switch event {
            case .acknowledged:
                isAsked = isAsked || isAwaited
                termination.acknowledge(3, at: now)
            case .acknowledgedOther: termination.acknowledge(2, at: now)
            case .hurried:
                isAsked = true
                termination.requestExit(at: now)
            case .voided:
                // Without a time for SIGTERM, nothing else would lead to the end.
                isAsked = isAsked || isAwaited && begin.nextDue == nil
                isAwaited = false
                termination.cancelAcknowledgement(at: now)
            case .soon: now = max(now, 19)
            case .atExit: now = max(now, 20)
            case .atKill: now = max(now, 40)
            }
            while let order = termination.advance(at: now) { orders.append(order) }
            guard !begin.isAtOnce else { continue }
            let isExitDue = isAsked || now >= 20 && begin.nextDue == 20
            #expect(orders.contains(.requestExit) == isExitDue, comment)
            #expect(orders.contains(.kill) == (begin.dueKill.map { now >= $0 } ?? false), comment)
        }
        #expect(orders == Array([.requestExit, .kill].prefix(orders.count)), comment)
        #expect(!begin.isAtOnce || orders.isEmpty, comment)
        #expect(termination.verdict == begin.verdict, comment)
        checkRecord(of: termination, isKilled: orders.contains(.kill), comment)
    }

    /// The next daemon continues from this point, and orders SIGKILL again.
    private func checkRecord(of termination: Termination, isKilled: Bool, _ comment: Comment) {
        var fields = Fields(termination.fields)
        guard var next = Termination(&fields) else {
            Issue.record("the record cannot be read: \(termination.fields)")
            return
        }
        #expect(isKilled ? next.advance(at: 40) == .kill : next == termination, comment)
    }
}
