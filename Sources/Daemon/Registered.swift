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
    /// The processes that we stop by signal.
    let extent: StoppedExtent

    let path: String
    /// As the D-Bus API writes it.
    var pid: UInt32 { UInt32(process.pid) }

    init(
        _ number: ApplicationNumber, id: ApplicationID, process: ProcessIdentity, user: UInt32,
        session: String, unit: String, launchOptions: [(String, Variant)], proc: Proc
    ) {
        self.number = number
        self.id = id
        self.process = process
        self.user = user
        self.session = session
        self.unit = unit
        self.launchOptions = launchOptions
        extent = StoppedExtent(proc: proc, main: process, owner: user)
        path = BusNames.path(ofApplication: number.rawValue)
    }
}

extension ProcessID {
    init(_ identity: ProcessIdentity) {
        self.init(pid: identity.pid, startTime: identity.startTime)
    }
}
