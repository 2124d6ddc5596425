public import AppStateContract

/// What a user says of one of their applications (`Application.Configure`). It goes before what the application says of
/// itself, and behind what the administrator says (`Settings.Override`). nil leaves it to them.
public struct Rule: Equatable, Sendable {
    /// Which rule it is, for a person: what the user has called it.
    public var name = ""
    public var suspension: SuspensionPolicy?
    public var reclaimable: Bool?
    /// In place of `Settings.backgroundGrace`, microseconds; `.max`: infinite.
    public var backgroundGrace: Microseconds?
    /// What keeps it from being suspended: reported reasons (`ExemptionReason`) and work (`ObjectionReason`); nil: all.
    public var keepWhile: [String]?
    /// In place of `Settings.drainEvery`; `.max` and 0: it is not let run.
    public var drainEvery: Microseconds?
    /// In place of `Settings.drainFor`.
    public var drainFor: Microseconds?
    /// nil: in the background.
    public var suspendWhen: SuspendWhen?
    /// Percent of one processor that it has in the background, where it is not suspended then.
    public var backgroundCPUQuota: UInt32?
    /// Whether the mark of unsaved changes in a window's title counts; nil: it does.
    public var unsavedMark: Bool?
    /// Ended because memory was short, it is started again in the background once it is not.
    public var relaunchReclaimed: Bool?

    public init() {}
}

extension Rule {
    /// How often, and for how long, it is let run while it is held; nil: as all others.
    var drain: [String]? {
        guard drainEvery != nil || drainFor != nil else { return nil }
        return [drainEvery, drainFor].map { $0.map { String($0) } ?? "" }
    }

    static func drain(_ fields: inout Fields) -> (every: Microseconds?, span: Microseconds?)? {
        guard let every = fields.span(), let span = fields.span() else { return nil }
        return (every, span)
    }

    /// What policy does otherwise than with all others; nil: nothing.
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
    /// A span that may be missing; nil: it is none.
    fileprivate mutating func span() -> Microseconds?? {
        guard let text = text() else { return nil }
        if text.isEmpty { return .some(nil) }
        return Microseconds(text).map { .some($0) }
    }
}
