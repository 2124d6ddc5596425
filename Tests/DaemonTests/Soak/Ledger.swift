import AppStateContract
import TestSupport

/// Checks the signals of one subscriber, one by one, against the contract: each application's edges begin at
/// not-running, are legal and without a gap; will-signals come right before their edge and did-signals right after it;
/// the Manager announces the same as the application; properties agree with the edges.
struct Ledger {
    private struct Record {
        var state = LifeCycleState.notRunning
        /// The only signal that may come next.
        var due: String? = "WillFinishLaunching"
        /// The will-signal whose edge has not come yet.
        var herald: String?
        /// The edge that the Manager has not announced yet.
        var unmirrored: [String]?
        var hasInterfaces = false
    }

    private var records: [String: Record] = [:]
    /// Applications that the Manager has removed, but not yet their interfaces.
    private var leaving: Set<String> = []
    /// The first few violations of the contract.
    private(set) var violations: [String] = []
    private(set) var added = 0
    private(set) var edges = 0
    /// The number of removals by exit reason.
    private(set) var removed: [String: Int] = [:]

    /// The present applications, with their states.
    var states: [String: LifeCycleState] { records.mapValues(\.state) }

    /// Whether no application is left and nothing remains to be announced.
    var isClosed: Bool { records.isEmpty && leaving.isEmpty }

    /// - Parameters:
    ///   - arguments: the leading arguments, as text.
    ///   - told: the state that a PropertiesChanged carries.
    mutating func take(
        _ interface: String, _ member: String, _ path: String, _ arguments: [String], told: String? = nil
    ) {
        switch interface {
        case BusNames.manager: manager(member, arguments)
        case BusNames.objectManager: objects(member, arguments)
        case BusNames.application: application(member, path, arguments)
        case BusNames.properties where told != nil:
            if records[path]?.state.rawValue != told {
                complain("\(path) is \(stateText(path)), its property State \(told ?? "")")
            }
        default: break
        }
    }

    mutating func complain(_ what: String) {
        if violations.count < 20 { violations.append(what) }
    }

    private func stateText(_ path: String) -> String { records[path]?.state.rawValue ?? "not there" }

    private mutating func manager(_ member: String, _ arguments: [String]) {
        let path = arguments.first ?? ""
        switch member {
        case "ApplicationAdded":
            if records[path] != nil || leaving.contains(path) { complain("\(path) added twice") }
            records[path] = Record()
            added += 1
        case "ApplicationRemoved":
            let reason = arguments.last ?? ""
            guard let record = records.removeValue(forKey: path) else {
                complain("\(path) removed, and was not there")
                return
            }
            if let due = record.due ?? record.herald { complain("\(path) removed with \(due) open") }
            if record.unmirrored != nil { complain("\(path) removed before the Manager told its last edge") }
            if record.state != .notRunning, reason != ExitReason.unregistered.rawValue {
                complain("\(path) removed (\(reason)) while \(record.state.rawValue)")
            }
            removed[reason, default: 0] += 1
            leaving.insert(path)
        case "StateChanged":
            // Path, id, pid, from, to, reason.
            if records[path]?.unmirrored != Array(arguments.dropFirst(3)) {
                complain("the Manager tells \(arguments), the application did not")
            }
            records[path]?.unmirrored = nil
        default: complain("Manager.\(member)\(arguments)")
        }
    }

    private mutating func objects(_ member: String, _ arguments: [String]) {
        let path = arguments.first ?? ""
        switch member {
        case "InterfacesAdded":
            if records[path]?.hasInterfaces != false { complain("InterfacesAdded out of place: \(path)") }
            records[path]?.hasInterfaces = true
        case "InterfacesRemoved":
            if leaving.remove(path) == nil { complain("InterfacesRemoved out of place: \(path)") }
        default: complain("ObjectManager.\(member)\(arguments)")
        }
    }

    private mutating func application(_ member: String, _ path: String, _ arguments: [String]) {
        guard var record = records[path] else {
            complain("\(member) of \(path), which is not there")
            return
        }
        if record.unmirrored != nil { complain("\(path): \(member) before the Manager told the edge") }
        if let due = record.due, due != member { complain("\(path): \(member) where \(due) was due") }
        if let herald = record.herald, member != "StateChanged" {
            complain("\(path): \(member) after \(herald)")
        }
        record.due = nil
        switch member {
        case "WillFinishLaunching": record.due = "DidFinishLaunching"
        case "WillEnterForeground", "WillResignActive": record.herald = member
        case "StateChanged": edge(path, &record, arguments)
        case "DidFinishLaunching", "DidBecomeActive", "DidEnterBackground", "WillTerminate": break
        default: complain("\(path): \(member)")
        }
        records[path] = record
    }

    private mutating func edge(_ path: String, _ record: inout Record, _ arguments: [String]) {
        edges += 1
        guard arguments.count == 3, let from = LifeCycleState(rawValue: arguments[0]),
            let to = LifeCycleState(rawValue: arguments[1]),
            let reason = StateChangeReason(rawValue: arguments[2])
        else {
            complain("\(path): StateChanged\(arguments)")
            return
        }
        let edge = Edge(from, to)
        if from != record.state { complain("\(path): \(edge) while \(record.state.rawValue)") }
        if !edge.isLegal { complain("\(path): \(edge) is no edge") }
        if (to == .notRunning) != (reason == .exit) { complain("\(path): \(edge) because of \(reason)") }
        let herald: String? =
            switch (from, to) {
            case (.notRunning, .inactive), (.background, .inactive): "WillEnterForeground"
            case (.active, .inactive): "WillResignActive"
            default: nil
            }
        if record.herald != herald {
            complain("\(path): \(edge) after \(record.herald ?? "nothing"), not \(herald ?? "nothing")")
        }
        record.herald = nil
        record.state = to
        record.unmirrored = arguments
        switch (from, to) {
        case (.inactive, .active): record.due = "DidBecomeActive"
        case (.notRunning, .background), (.inactive, .background): record.due = "DidEnterBackground"
        default: break
        }
    }
}
