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
    /// What becomes of it is kept under its id.
    let isKept: Bool
    let launchOptions: [(String, Variant)]
    /// About what it takes to keep them.
    let launchOptionBytes: Int
    /// How its processes are brought to a stand.
    let suspender: Suspender
    /// What brings back the resources that it had of its own.
    var resources: [String] = []

    let path: String
    /// Under what it is kept; nil: it is not.
    var kept: KeptID? { isKept ? KeptID(user: user, application: id) : nil }
    /// As the D-Bus API writes it.
    var pid: UInt32 { UInt32(process.pid) }

    init(
        _ number: ApplicationNumber, id: ApplicationID, process: ProcessIdentity, user: UInt32,
        session: String, unit: String, isKept: Bool, launchOptions: [(String, Variant)], suspender: Suspender
    ) {
        self.number = number
        self.id = id
        self.process = process
        self.user = user
        self.session = session
        self.unit = unit
        self.isKept = isKept
        self.launchOptions = LaunchOptions.sendable(launchOptions)
        launchOptionBytes = LaunchOptions.keptBytes(of: self.launchOptions)
        self.suspender = suspender
        path = BusNames.path(ofApplication: number.rawValue)
    }
}

// MARK: Written down

extension Registered {
    /// What the next daemon must know of it beside what the life cycle knows and what is held (`Holding`).
    var recorded: [Record.Line] {
        var lines = [Record.Line("logind-session", session), Record.Line("unit", unit)]
        if isKept { lines.append(Record.Line("kept", "1")) }
        for (key, value) in launchOptions {
            if let texts = value.texts { lines.append(Record.Line("launch-option", [key] + texts)) }
        }
        return lines
    }

    convenience init(
        _ record: Record, suspender: (ProcessIdentity, UInt32) -> Suspender
    ) throws(Record.Flaw) {
        let process = try record.require("process") { ProcessID(&$0) }.identity
        let user: UInt32 = try record.require("user") { $0.number() }
        let options = try record.all("launch-option") { fields -> (String, Variant)? in
            guard let key = fields.text(), let value = Variant(texts: &fields.rest) else { return nil }
            return (key, value)
        }
        self.init(
            ApplicationNumber(try record.require("number") { $0.number() }),
            id: try record.require("id") { $0.text().flatMap(ApplicationID.init) }, process: process,
            user: user, session: try record.optional("logind-session") { $0.text() } ?? "",
            unit: try record.optional("unit") { $0.text() } ?? "", isKept: record["kept"] != nil,
            launchOptions: options,
            suspender: suspender(process, user))
    }
}

extension ProcessID {
    init(_ identity: ProcessIdentity) {
        self.init(pid: identity.pid, startTime: identity.startTime)
    }
}
