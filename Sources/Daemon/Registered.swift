import AppStateBus
import AppStateContract
import LifeCycle
import Linux

/// What the world, not the life cycle, needs to know of an application: how it is named on the bus and
/// how its processes are reached.
final class Registered {
    let number: ApplicationNumber
    let id: ApplicationID
    let process: ProcessIdentity
    let user: UInt32
    /// logind's session and systemd's unit of the process at registration; empty where there is none.
    let session: String
    let unit: String
    let launchOptions: [(String, Variant)]
    /// How its processes are brought to a stand.
    let suspender: Suspender
    /// What brings back the resources that it had of its own.
    var resources: [String] = []

    let path: String
    /// As the D-Bus API writes it.
    var pid: UInt32 { UInt32(process.pid) }

    init(
        _ number: ApplicationNumber, id: ApplicationID, process: ProcessIdentity, user: UInt32,
        session: String, unit: String, launchOptions: [(String, Variant)], suspender: Suspender
    ) {
        self.number = number
        self.id = id
        self.process = process
        self.user = user
        self.session = session
        self.unit = unit
        self.launchOptions = launchOptions
        self.suspender = suspender
        path = BusNames.path(ofApplication: number.rawValue)
    }
}

// MARK: Written down

extension Registered {
    /// What the next daemon must know of it beside what the life cycle knows.
    var recorded: [Record.Line] {
        var lines = [Record.Line("logind-session", session), Record.Line("unit", unit)]
        for (key, value) in launchOptions {
            if let text = value.text { lines.append(Record.Line("launch-option", "\(key) \(text)".escaped)) }
        }
        if suspender.isFreezeOurs, let cgroup = suspender.frozen {
            lines.append(Record.Line("frozen-cgroup", cgroup.path.escaped))
        }
        lines += suspender.standing.map { Record.Line("standing", ProcessID($0).recorded) }
        lines += suspender.stoppedByUs.map { Record.Line("stopped-process", ProcessID($0).recorded) }
        return lines
    }

    convenience init(
        _ record: Record, suspender: (ProcessIdentity, UInt32) -> Suspender
    ) throws(Record.Flaw) {
        let process = try record.require("process", ProcessID.init(recorded:)).identity
        let user = try record.require("user") { UInt32($0) }
        let options = try record.all("launch-option") { line -> (String, Variant)? in
            guard let text = String(escaped: line), let space = text.firstIndex(of: " "),
                let value = Variant(text: String(text[text.index(after: space)...]))
            else { return nil }
            return (String(text[..<space]), value)
        }
        self.init(
            ApplicationNumber(try record.require("number") { UInt32($0) }),
            id: try record.require("id", ApplicationID.init), process: process, user: user,
            session: record["logind-session"] ?? "", unit: record["unit"] ?? "", launchOptions: options,
            suspender: suspender(process, user))
    }
}

extension ProcessID {
    init(_ identity: ProcessIdentity) {
        self.init(pid: identity.pid, startTime: identity.startTime)
    }
}
