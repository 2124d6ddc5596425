import AppStateBus
import AppStateContract

/// Why an application is suspended or not, in one sentence: what follows from the entries of `Explain`.
struct Conclusion {
    private let facts: [String: Variant]
    /// CLOCK_MONOTONIC, microseconds.
    private let now: UInt64
    private let nameOfUser: (UInt32) -> String

    /// - Parameters:
    ///   - entries: the entries of `Explain`.
    ///   - now: CLOCK_MONOTONIC in microseconds.
    ///   - nameOfUser: the name of a user.
    init(
        _ entries: [(key: String, value: Variant)], at now: UInt64,
        nameOfUser: @escaping (UInt32) -> String
    ) {
        facts = Dictionary(entries.map { ($0.key, $0.value) }) { $1 }
        self.now = now
        self.nameOfUser = nameOfUser
    }

    /// The sentence.
    var sentence: String {
        let by = SuspendHold.all(in: facts["holds"]).map(words).joined(separator: " and ")
        if state == .suspended {
            return by.isEmpty ? "It is suspended, and is about to run." : "It is suspended \(by)."
        }
        if !by.isEmpty {
            let failures = texts("stop-failures")
            if flag("stopped") { return "It is stopped \(by), while it is being launched." }
            return failures.isEmpty
                ? "It is about to be suspended \(by)."
                : "It is to be suspended \(by), but cannot be stopped: \(failures.joined(separator: "; "))."
        }
        return "It is not suspended: \(reason)."
    }

    /// Why nobody has suspended it.
    private var reason: String {
        if flag("launching") { return "it is being launched" }
        if flag("terminating") { return "it is being ended" }
        let suspension = text("suspension")
        if suspension == SuspensionPolicy.manual.rawValue || suspension == SuspensionPolicy.never.rawValue {
            return "Suspension=\(suspension), so policy never suspends it"
        }
        // Its rule may say that it is suspended while it is visible. Then there is a deadline in this state, too.
        let isResting = deadline != nil || flag("would-suspend")
        switch state {
        case .active: return "it has the focus"
        case .inactive where !isResting && texts("windows").isEmpty:
            return "it counts as visible, because no session agent or other reporter reports its windows"
        case .inactive where !isResting: return "a window is visible"
        case .notRunning: return "it does not run"
        default: return reasonAtRest
        }
    }

    /// Why policy has not suspended it although it may.
    private var reasonAtRest: String {
        let objections = texts("objections")
        if objections.contains("the window reporter of its session is gone") {
            return "no session agent or other reporter reports its windows any more"
        }
        if objections.contains("the machine is shutting down") { return "the machine is shutting down" }
        let against = objections.filter { !Self.isInDeadline($0) }
        if let deadline {
            // The deadline counts the limits of background tasks, which may end earlier.
            let latest = facts["tasks"] == nil ? "" : " at the latest, when its background tasks have ended"
            let when = deadline > now ? "in \(duration(of: deadline - now))\(latest)" : "now"
            let unless = against.isEmpty ? "" : ", unless this still speaks against it: \(list(against))"
            return "policy suspends it \(when)\(unless)"
        }
        if flag("would-suspend") { return "policy would have suspended it, but Mode=observe" }
        if !against.isEmpty { return "something keeps it running: \(list(against))" }
        let last = text("last-objection")
        return last.isEmpty
            ? "policy has set no time for it"
            : "when policy was about to do it, this spoke against it: \(last)"
    }

    /// Whether the deadline takes account of an objection. A window that is visible is no obstacle where there is a
    /// deadline in spite of it.
    private static func isInDeadline(_ objection: String) -> Bool {
        objection.hasPrefix("background task ")
            || ["protected data becomes unavailable", "has a visible window"].contains(objection)
    }

    /// Who holds it.
    private func words(_ hold: SuspendHold) -> String {
        switch HoldReason(rawValue: hold.reason) {
        case .policy: return "by policy"
        case .request: return "at the request of \(user(hold.holder))"
        case .toggle: return "at the request of \(user(hold.holder)), until it gets the focus"
        case .sleep: return "by policy, until the machine is awake and the network is back"
        case .signal where hold.holder.hasPrefix("pid "):
            return "by a signal of process \(hold.holder.dropFirst("pid ".count))"
        case .signal where hold.holder.hasPrefix("cgroup "):
            return "because another process has frozen \(hold.holder)"
        case .signal: return "by a signal of another process"
        case nil: return "by \(hold.reason) \(hold.holder)"
        }
    }

    private func user(_ holder: String) -> String {
        guard holder.hasPrefix("uid:"), let number = UInt32(holder.dropFirst("uid:".count)) else {
            return holder
        }
        return nameOfUser(number)
    }

    private var state: LifeCycleState? { LifeCycleState(rawValue: text("state")) }

    private var deadline: UInt64? {
        if case .uint64(let time)? = facts["suspension-deadline"], time != .never { time } else { nil }
    }

    private func list(_ texts: [String]) -> String { texts.joined(separator: "; ") }

    private func flag(_ key: String) -> Bool { if case .bool(true)? = facts[key] { true } else { false } }

    private func text(_ key: String) -> String {
        if case .string(let text)? = facts[key] { text } else { "" }
    }

    private func texts(_ key: String) -> [String] {
        if case .strings(let texts)? = facts[key] { texts } else { [] }
    }
}
