public import AppStateContract

/// What the applications with one id have done in a time.
public struct UsageSum: Equatable, Sendable {
    public let id: String
    /// Seconds in each state. Of several applications with the id, each counts.
    public var seconds: [LifeCycleState: Int64] = [:]
    /// Milliseconds of processor time used in each state.
    public var processor: [LifeCycleState: Int64] = [:]
    /// How often it was suspended.
    public var freezes = 0
    /// Milliseconds in which it was frozen: as the kernel has counted, or else the time in the state `suspended`.
    public var frozen: Int64 = 0
    /// Milliseconds of these that the kernel has counted.
    public var counted: Int64 = 0
    /// The most KiB that it had in swap.
    public var swapped: Int64 = 0
    /// KiB that were freed when it was ended because memory was short.
    public var reclaimed: Int64 = 0

    public init(id: String) { self.id = id }

    public var allProcessor: Int64 { processor.values.reduce(0, +) }

    /// An estimate of the milliseconds of processor time that suspension has saved: what it would have used in the time
    /// that it was frozen, at the rate that it had in the background. Nil if it was there for less than ten seconds.
    public var saved: Int64? {
        guard let background = seconds[.background], background >= 10 else { return nil }
        return Int64(Double(frozen) * Double(processor[.background] ?? 0) / Double(background * 1_000))
    }
}

extension UsageLog {
    /// A time that an application spent in a state, and what it used in it.
    public struct Span: Equatable, Sendable {
        public let id: String
        public let state: LifeCycleState
        public let start: Int64
        public let end: Int64
        /// What has ended it; nil: it was not seen to end.
        public let next: Event?
        /// It has become suspended at its start.
        public let isFreeze: Bool
    }

    /// All times in which applications ran.
    public var spans: [Span] {
        var spans: [Span] = []
        for run in runs {
            var last: [Int: (event: Event, isFreeze: Bool)] = [:]
            func end(_ number: Int, at time: Int64, _ next: Event?) {
                guard let (event, isFreeze) = last[number], let id = run.names[number] else { return }
                spans.append(
                    Span(
                        id: id, state: event.state, start: event.time, end: time, next: next,
                        isFreeze: isFreeze))
            }
            for event in run.events {
                let number = event.application
                end(number, at: event.time, event)
                let before = last[number]?.event.state
                let isFreeze = event.state == .suspended && before != nil && before != .suspended
                last[number] = (event, isFreeze)
            }
            for number in last.keys.sorted() { end(number, at: run.end, nil) }
        }
        // What frees memory may be reported when the application has ended already.
        return spans.filter { $0.state != .notRunning || ($0.next?.reclaimed ?? 0) > 0 }
    }

    /// The sums of each id within a time, sorted by id. What was used in a state that began before is counted if it
    /// ended within.
    public func sums(from start: Int64, to end: Int64) -> [UsageSum] {
        var sums: [String: UsageSum] = [:]
        for span in spans where span.end >= start && span.start < end {
            var sum = sums[span.id] ?? UsageSum(id: span.id)
            let seconds = max(0, min(span.end, end) - max(span.start, start))
            if span.state != .notRunning { sum.seconds[span.state, default: 0] += seconds }
            if span.isFreeze, span.start >= start { sum.freezes += 1 }
            if span.state == .suspended {
                // The kernel has counted more if it was frozen a moment before it was announced.
                let known = min(span.next?.frozen ?? 0, seconds * 1_000)
                sum.counted += known
                sum.frozen += known > 0 ? known : seconds * 1_000
            }
            if let next = span.next, next.time <= end {
                sum.processor[span.state, default: 0] += next.processor
                sum.swapped = max(sum.swapped, next.swapped)
                sum.reclaimed += next.reclaimed
            }
            sums[span.id] = sum
        }
        return sums.values.sorted { $0.id < $1.id }
    }
}
