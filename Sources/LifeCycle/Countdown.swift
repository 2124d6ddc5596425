/// A time span that can be paused: the limits of § 4 do not always advance.
enum Countdown: Equatable, Sendable {
    case running(until: Microseconds)
    case paused(remaining: Microseconds)
    /// `infinity` in the configuration.
    case endless

    init(_ span: Microseconds?, from now: Microseconds) {
        self = span.map { .running(until: now.advanced(saturatingBy: $0)) } ?? .endless
    }

    /// When it ends if nothing pauses it; nil while it is paused, or if it never ends.
    var deadline: Microseconds? {
        switch self {
        case .running(let until): until
        case .paused, .endless: nil
        }
    }

    func remaining(at now: Microseconds) -> Microseconds? {
        switch self {
        case .running(let until): until > now ? until - now : 0
        case .paused(let remaining): remaining
        case .endless: nil
        }
    }

    func isOver(at now: Microseconds) -> Bool {
        switch self {
        case .running(let until): until <= now
        case .paused, .endless: false
        }
    }

    /// Resumes or pauses; otherwise nothing changes.
    mutating func setRunning(_ isRunning: Bool, at now: Microseconds) {
        switch self {
        case .running(let until) where !isRunning: self = .paused(remaining: until > now ? until - now : 0)
        case .paused(let remaining) where isRunning:
            self = .running(until: now.advanced(saturatingBy: remaining))
        case .running, .paused, .endless: break
        }
    }
}

extension Microseconds {
    /// The sum, or the latest time that can be represented.
    func advanced(saturatingBy span: Microseconds) -> Microseconds {
        let (sum, overflow) = addingReportingOverflow(span)
        return overflow ? .max : sum
    }

    /// The next multiple of `grid`, or the latest time that can be represented.
    func rounded(upTo grid: Microseconds) -> Microseconds {
        let rest = self % grid
        return rest == 0 ? self : advanced(saturatingBy: grid - rest)
    }
}
