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
    /// The reasons that keep it from being suspended: reported reasons (`ExemptionReason`) and work
    /// (`ObjectionReason`); nil: all.
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
    /// How often and for how long it is drained while it is held; nil: like all others.
    var drain: [String]? {
        guard drainEvery != nil || drainFor != nil else { return nil }
        return [drainEvery, drainFor].map { $0.map { String($0) } ?? "" }
    }

    static func drain(_ fields: inout Fields) -> (every: Microseconds?, span: Microseconds?)? {
        guard let every = fields.span(), let span = fields.span() else { return nil }
        return (every, span)
    }

    /// How policy treats it differently from other applications; nil: it does not.
    var policy: [String]? {
        guard suspendWhen != nil || backgroundCPUQuota != nil else { return nil }
        return [suspendWhen?.rawValue ?? "", backgroundCPUQuota.map { String($0) } ?? ""]
    }

    static func policy(_ fields: inout Fields) -> (when: SuspendWhen?, quota: UInt32?)? {
        guard let when = fields.text(), let quota = fields.text(),
            when.isEmpty || SuspendWhen(rawValue: when) != nil,
            quota.isEmpty || UInt32(quota) != nil
        else { return nil }
        return (SuspendWhen(rawValue: when), UInt32(quota))
    }

    var fields: [String] {
        [
            name, suspension?.rawValue ?? "", reclaimable?.digit ?? "",
            backgroundGrace.map { String($0) } ?? "",
            (keepWhile != nil).digit,
        ] + (keepWhile ?? [])
    }

    init?(_ fields: inout Fields) {
        guard let name = fields.text(), let suspension = fields.text(), let reclaimable = fields.text(),
            let grace = fields.span(), let isList = fields.flag(), let words = fields.all({ $0.text() }),
            isList || words.isEmpty,
            suspension.isEmpty || SuspensionPolicy(rawValue: suspension) != nil,
            reclaimable.isEmpty || Bool(digit: reclaimable) != nil
        else { return nil }
        self.name = name
        self.suspension = SuspensionPolicy(rawValue: suspension)
        self.reclaimable = Bool(digit: reclaimable)
        backgroundGrace = grace
        keepWhile = isList ? words : nil
    }
}

extension Fields {
    /// A time span that may be missing; nil: the text is not a time span.
    fileprivate mutating func span() -> Microseconds?? {
        guard let text = text() else { return nil }
        if text.isEmpty { return .some(nil) }
        return Microseconds(text).map { .some($0) }
    }
}
