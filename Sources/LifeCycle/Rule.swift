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
    /// The reported reasons that keep it from being suspended (`ExemptionReason`); nil: all.
    public var keepWhile: [String]?

    public init() {}
}

extension Rule {
    var fields: [String] {
        [
            name, suspension?.rawValue ?? "", reclaimable?.digit ?? "",
            backgroundGrace.map { String($0) } ?? "",
            (keepWhile != nil).digit,
        ] + (keepWhile ?? [])
    }

    init?(_ fields: inout Fields) {
        guard let name = fields.text(), let suspension = fields.text(), let reclaimable = fields.text(),
            let grace = fields.text(), let isList = fields.flag(), let words = fields.all({ $0.text() }),
            isList || words.isEmpty,
            suspension.isEmpty || SuspensionPolicy(rawValue: suspension) != nil,
            reclaimable.isEmpty || Bool(digit: reclaimable) != nil,
            grace.isEmpty || Microseconds(grace) != nil
        else { return nil }
        self.name = name
        self.suspension = SuspensionPolicy(rawValue: suspension)
        self.reclaimable = Bool(digit: reclaimable)
        backgroundGrace = Microseconds(grace)
        keepWhile = isList ? words : nil
    }
}
