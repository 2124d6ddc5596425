import AppStateContract

/// The time before policy suspends an application that is eligible for it (§ 4).
enum Grace: Equatable, Sendable {
    /// It is not eligible, or policy does not suspend it.
    case none
    /// It is needed, and about to run. Its grace period will last until then (CLOCK_MONOTONIC) at least; `isBrief`: and not
    /// longer, because it only has to answer.
    case demanded(floor: Microseconds, isBrief: Bool = false)
    /// - Parameters:
    ///   - serial: the acknowledgement that ends it; nil: none is awaited.
    ///   - floor: it lasts until then at least, because the application was needed, or was asked to end; 0: it was not.
    case running(serial: UInt64?, Countdown, floor: Microseconds)
    case over

    enum Event {
        /// The application is eligible from now on, or it is resumed.
        case begins(serial: UInt64? = nil)
        /// Something that kept policy from suspending it has ended.
        case objectionEnded
        /// The user has changed its length.
        case changed
        /// It is needed, or something prevented its suspension: policy tries again, but not before this time has passed.
        case again(atLeast: Microseconds)
        /// It is needed for an answer: policy tries again after this time, but not before the end of a longer period.
        case answers(within: Microseconds)
        case acknowledged(UInt64)
        /// The delegate that was to acknowledge is gone. Another one need not.
        case delegateLeft
    }

    /// - Parameters:
    ///   - span: its length; nil: it does not end.
    ///   - isEligible: the application is in a state in which policy suspends it.
    mutating func handle(_ event: Event, span: Microseconds?, isEligible: Bool, at now: Microseconds) {
        func running(
            _ serial: UInt64? = nil, atLeast least: Microseconds? = nil, floor: Microseconds = 0
        ) -> Grace {
            let left = floor - min(now, floor)
            let countdown = Countdown(span.map { max($0, least ?? 0, left) }, from: now)
            return .running(serial: serial, countdown, floor: floor)
        }
        switch (self, event) {
        case (.none, .begins(let serial)), (.over, .begins(let serial)):
            self = running(serial)
        case (.demanded(let floor, isBrief: true), .begins(let serial)):
            self = .running(serial: serial, Countdown(floor - min(now, floor), from: now), floor: floor)
        case (.demanded(let floor, _), .begins(let serial)), (.running(_, _, let floor), .begins(let serial)):
            self = running(serial, floor: floor)

        // It does not end before the former one.
        case (.running(_, let former, let floor), .objectionEnded):
            self = running(atLeast: former.remaining(at: now), floor: floor)
        // A delegate keeps the time that it was promised.
        case (.running(let serial, let former, let floor), .changed):
            self = running(serial, atLeast: serial == nil ? nil : former.remaining(at: now), floor: floor)
        case (.over, .objectionEnded), (.over, .changed):
            self = running()

        // An acknowledgement that is still awaited ends it, too.
        case (.running(let serial, _, let floor), .again(let least)):
            self = running(serial, floor: max(floor, now.advanced(saturatingBy: least)))
        case (_, .again(let least)) where isEligible:
            self = running(floor: now.advanced(saturatingBy: least))
        case (_, .again(let least)):
            self = .demanded(floor: now.advanced(saturatingBy: least))

        case (.running(let serial, let former, let floor), .answers(let span)):
            guard let left = former.remaining(at: now), left < span else { break }
            let end = now.advanced(saturatingBy: span)
            self = .running(serial: serial, Countdown(span, from: now), floor: max(floor, end))
        case (.demanded(let floor, let isBrief), .answers(let span)):
            self = .demanded(floor: max(floor, now.advanced(saturatingBy: span)), isBrief: isBrief)
        case (_, .answers(let span)) where isEligible:
            let end = now.advanced(saturatingBy: span)
            self = .running(serial: nil, Countdown(span, from: now), floor: end)
        case (_, .answers(let span)):
            self = .demanded(floor: now.advanced(saturatingBy: span), isBrief: true)

        case (.running(let awaited?, _, _), .acknowledged(let serial)) where awaited == serial:
            self = .over
        case (.running(_, let countdown, let floor), .delegateLeft):
            self = .running(serial: nil, countdown, floor: floor)
        case (.none, .objectionEnded), (.none, .changed), (.demanded, .objectionEnded), (.demanded, .changed),
            (_, .acknowledged), (_, .delegateLeft):
            break
        }
    }

    /// CLOCK_MONOTONIC of its end; nil if none is running, or it does not end.
    var deadline: Microseconds? {
        if case .running(_, let countdown, _) = self { countdown.deadline } else { nil }
    }

    /// The shortest one after something prevented a suspension, and while the application is needed.
    static let leastRetry: Microseconds = 1_000_000
}

extension Grace {
    var fields: [String]? {
        switch self {
        case .none: nil
        case .demanded(let floor, let isBrief): ["demanded", String(floor), isBrief.digit]
        case .running(let serial, let countdown, let floor):
            ["running", String(serial ?? 0), String(floor)] + countdown.fields
        case .over: ["over"]
        }
    }

    init?(_ fields: inout Fields) {
        switch fields.text() {
        case "demanded":
            guard let floor: Microseconds = fields.number(), let isBrief = fields.flag() else { return nil }
            self = .demanded(floor: floor, isBrief: isBrief)
        case "running":
            guard let serial: UInt64 = fields.number(), let floor: Microseconds = fields.number(),
                let countdown = Countdown(&fields)
            else { return nil }
            self = .running(serial: serial == 0 ? nil : serial, countdown, floor: floor)
        case "over": self = .over
        default: return nil
        }
    }
}

/// Whether a program waits for an application that was needed.
struct Answering: Equatable, Sendable {
    /// CLOCK_MONOTONIC. Further demands do not put it off while the application runs because of this one: whoever calls it
    /// again and again could keep it from being suspended.
    let since: Microseconds
    /// A program waits for it. Whoever calls it again and again cannot keep it fast: it gets this again only after it was
    /// suspended, was visible to the user, or was not needed for a while.
    var isFast: Bool
    /// It was resumed for nothing but an answer: no grace period follows.
    var isAll: Bool

    static let longest: Microseconds = 30_000_000

    var end: Microseconds { since.advanced(saturatingBy: Self.longest) }

    var fields: [String] { [String(since), isFast.digit, isAll.digit] }

    init(since: Microseconds, isFast: Bool, isAll: Bool = false) {
        self.since = since
        self.isFast = isFast
        self.isAll = isAll
    }

    init?(_ fields: inout Fields) {
        guard let since: Microseconds = fields.number(), let isFast = fields.flag(),
            let isAll = fields.flag()
        else { return nil }
        self.init(since: since, isFast: isFast, isAll: isAll)
    }
}
