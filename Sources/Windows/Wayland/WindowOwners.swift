import Glibc
import Linux

/// Whose a compositor's windows are, where it does not say.
///
/// The compositor knows its clients by their connections; the kernel tells of these. Which of them has made a window
/// is taken from the application's id: the process whose program has that name, or the name that the desktop entry
/// gives it, or that is registered so; else one in the unit of that application, or below one that is registered so. An id that speaks for nobody leaves all of them. Several that
/// are left are several: nothing is guessed.
struct WindowOwners {
    /// The clients, as of the last refresh; not ourselves.
    private(set) var clients: Set<ProcessIdentity> = []
    /// The names under which processes are registered with the daemon, by pid, as far as they are known.
    var registered: [Int32: String] = [:]
    private let services: Set<String>
    private let proc: Proc
    private var connections: SocketClients
    private var names: [ProcessIdentity: ProgramName] = [:]
    private var entries: DesktopEntries

    /// - Parameter services: the names of the sockets of the compositor and of its X server.
    init(services: some Sequence<String>, proc: Proc = Proc()) {
        self.services = Set(services)
        self.proc = proc
        connections = SocketClients(proc: proc)
        entries = DesktopEntries()
    }

    /// The sockets of an X server on this machine.
    ///
    /// - Parameter display: as in DISPLAY.
    static func services(ofX11 display: String?) -> [String] {
        guard let display, display.hasPrefix(":"),
            let number = UInt16(display.dropFirst().prefix { $0 != "." })
        else { return [] }
        let path = "/tmp/.X11-unix/X\(number)"
        return [path, "@" + path]
    }

    /// Asks the kernel anew.
    mutating func refresh() throws(KernelFailure) {
        let own = getpid()
        do throws(KernelFailure) {
            clients = Set(try connections.connected(to: services).filter { $0.pid != own })
        } catch {
            clients = []
            throw error
        }
        names = names.filter { clients.contains($0.key) }
    }

    /// Those of the candidates that the app id speaks for; all of them where it speaks for none. The oldest first.
    mutating func of(_ appID: String, among candidates: Set<ProcessIdentity>) -> [ProcessIdentity] {
        var best = ProgramName.Match.none
        var found: [ProcessIdentity] = []
        let command = entries.command(of: appID)
        for candidate in candidates.sorted(by: { ($0.startTime, $0.pid) < ($1.startTime, $1.pid) }) {
            let match = max(
                name(of: candidate).match(appID, command: command), registration(of: candidate).match(appID))
            if match > best { (best, found) = (match, []) }
            if match == best { found.append(candidate) }
        }
        return found
    }

    /// As what the process is registered, or the one nearest above it.
    private func registration(of process: ProcessIdentity) -> ProgramName {
        if let own = registered[process.pid] { return ProgramName(names: [own.lowercased()]) }
        guard !registered.isEmpty else { return ProgramName(names: []) }
        let name = proc.lineage(of: process.pid).lazy.compactMap { registered[$0.pid] }.first
        return ProgramName(names: [], unit: name?.lowercased() ?? "")
    }

    private mutating func name(of process: ProcessIdentity) -> ProgramName {
        if let known = names[process] { return known }
        let name = ProgramName(of: process.pid, proc: proc)
        names[process] = name
        return name
    }
}
