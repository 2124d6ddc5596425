public import AppStateContract

/// A user's settings for one of their applications (`Application.Configure`). They take precedence over the
/// application's own settings, but not over the administrator's (`Settings.Override`). nil: the rule leaves
/// the setting to these.
public struct Rule: Equatable, Sendable {
    /// The name of the rule, for people.
    public var name = ""
    public var suspension: SuspensionPolicy?
    public var reclaimable: Bool?
    /// Replaces `Settings.backgroundGrace`, microseconds; `never`: infinite.
    public var backgroundGrace: Microseconds?
    /// The reasons that keep it from being suspended: `ObjectionReason`; nil: all that count by
    /// default.
    public var keepWhile: [String]?
    /// Replaces `Settings.drainEvery`; `never`: it is not drained.
    public var drainEvery: Microseconds?
    /// Replaces `Settings.drainFor`.
    public var drainFor: Microseconds?
    /// nil: in the background.
    public var suspendWhen: SuspendWhen?
    /// The percentage of one processor that it gets in the background. It is then not suspended there.
    public var backgroundCPUQuota: UInt32?
    /// Whether the mark of unsaved changes in a window's title counts; nil: it does.
    public var unsavedMark: Bool?
    /// Whether it is started again in the background after it was ended because memory was short, once memory no longer
    /// is.
    public var relaunchReclaimed: Bool?

    public init() {}
}

extension Rule {
    var fields: [String] {
        func text(_ number: (some BinaryInteger)?) -> String { number.map { String($0) } ?? "" }
        return [
            name, suspension?.rawValue ?? "", reclaimable?.digit ?? "", text(backgroundGrace),
            text(drainEvery), text(drainFor), suspendWhen?.rawValue ?? "", text(backgroundCPUQuota),
            unsavedMark?.digit ?? "", relaunchReclaimed?.digit ?? "", (keepWhile != nil).digit,
        ] + (keepWhile ?? [])
    }

    init?(_ fields: inout Fields) {
        guard let name = fields.text(), let suspension = fields.optional(SuspensionPolicy.init(rawValue:)),
            let reclaimable = fields.optional(Bool.init(digit:)),
            let grace = fields.optional({ Microseconds($0) }),
            let every = fields.optional({ Microseconds($0) }),
            let span = fields.optional({ Microseconds($0) }),
            let when = fields.optional(SuspendWhen.init(rawValue:)),
            let quota = fields.optional({ UInt32($0) }),
            let mark = fields.optional(Bool.init(digit:)), let relaunch = fields.optional(Bool.init(digit:)),
            let isList = fields.flag(), let words = fields.all({ $0.text() }), isList || words.isEmpty
        else { return nil }
        self.name = name
        self.suspension = suspension
        self.reclaimable = reclaimable
        backgroundGrace = grace
        (drainEvery, drainFor) = (every, span)
        suspendWhen = when
        backgroundCPUQuota = quota
        unsavedMark = mark
        relaunchReclaimed = relaunch
        keepWhile = isList ? words : nil
    }
}
