import AppStateBus
import AppStateContract
import Glibc
import Linux

/// An entry of `SuspendHolds`: who wants an application suspended, and why.
struct SuspendHold: Equatable {
    let reason: String
    /// Empty if it is not known.
    let holder: String

    /// The entries of a list, as the property and `Explain` have it.
    static func all(in value: Variant?) -> [SuspendHold] {
        guard case .array(_, let entries)? = value else { return [] }
        return entries.compactMap { entry in
            guard case .structure(let parts) = entry, parts.count == 2, case .string(let reason) = parts[0],
                case .string(let holder) = parts[1]
            else { return nil }
            return SuspendHold(reason: reason, holder: holder)
        }
    }
}

extension Client {
    /// Which holds keep an application suspended that was to run, as a sentence; nil: none of these reasons does.
    ///
    /// - Parameter name: how the user names the application.
    func lastingHolds(at path: String, of name: String, _ reasons: Set<HoldReason>) -> String? {
        let holds = SuspendHold.all(in: try? properties(of: path)[ApplicationProperty.suspendHolds.rawValue])
        let lasting = holds.filter { HoldReason(rawValue: $0.reason).map(reasons.contains) ?? false }
        if lasting.isEmpty { return nil }
        let isOthers = { (hold: SuspendHold) in
            hold.reason == HoldReason.request.rawValue && hold.holder != "uid:\(getuid())"
        }
        let others = lasting.filter(isOthers).map(\.holder)
        let who = others.isEmpty ? "until" : "until \(others.joined(separator: " and ")) has run"
        let what = lasting.map { [$0.reason, $0.holder].joined(separator: " ").trimmed }
        return "\(name) stays suspended (\(what.joined(separator: ", "))) \(who): "
            + "appstatectl resume \(BusNames.applicationNumber(inPath: path) ?? 0)"
    }
}
