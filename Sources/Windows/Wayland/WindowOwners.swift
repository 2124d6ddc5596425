import Glibc
import Linux

/// The processes that a compositor's windows belong to, where the compositor does not report them.
///
/// The compositor knows its clients by their connections, and the kernel reports these. The application's id
/// shows which client has created a window: the process whose program has that name, or the name that the
/// desktop entry gives it, or that is registered under it; else a process in the unit of that application, or
/// below a process that is registered under it. If an id matches no client, all of them remain. If several
/// remain, all of them count, because a guess could be wrong.
struct WindowOwners {
    /// The clients as of the last refresh, without ourselves.
    private(set) var clients: Set<ProcessIdentity> = []
    /// The names under which processes are registered with the daemon, by pid, as far as they are known.
    var registered: [Int32: String] = [:]
    private let services: Set<String>
    /// Where Flatpak makes a socket for each sandbox, at which the compositor then listens (security-context-v1). Those
    /// of another compositor are there, too: the app id tells its clients apart. Nil: there is no such place.
    private let sandboxes: String?
    private let proc: Proc
    private var connections: SocketClients
    private var names: [ProcessIdentity: ProgramName] = [:]
    /// The name of the program that the desktop entry of this id starts; nil if there is none.
    private let command: (String) -> String?

    /// The most sandboxes that are examined. Flatpak leaves their sockets behind until the session ends.
    private static let mostSandboxes = 16_384

    /// - Parameters:
    ///   - services: the names of the sockets of the compositor and of its X server.
    ///   - runtime: the value of XDG_RUNTIME_DIR.
    ///   - command: returns the name of the program that the desktop entry of an id starts.
    init(
        services: some Sequence<String>, runtime: String? = Environment["XDG_RUNTIME_DIR"],
        proc: Proc = Proc(), command: @escaping (String) -> String? = { _ in nil }
    ) {
        self.services = Set(services)
        sandboxes = runtime.map { Self.sandboxes(in: $0) }
        self.proc = proc
        connections = SocketClients(proc: proc)
        self.command = command
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

    /// Flatpak binds its sockets below the resolved path of XDG_RUNTIME_DIR.
    private static func sandboxes(in runtime: String) -> String {
        let resolved = realpath(runtime, nil)
        defer { free(resolved) }
        return (resolved.map { String(cString: $0) } ?? runtime) + "/.flatpak/wl"
    }

    /// The names of the sockets of sandboxes.
    private var sandboxServices: [String] {
        guard let sandboxes else { return [] }
        return TextFile.names(inDirectory: sandboxes).prefix(Self.mostSandboxes).map { "\(sandboxes)/\($0)" }
    }

    /// Queries the kernel again.
    mutating func refresh() throws(KernelFailure) {
        let own = getpid()
        do throws(KernelFailure) {
            let services = services.union(sandboxServices)
            clients = Set(try connections.connected(to: services).filter { $0.pid != own })
        } catch {
            clients = []
            throw error
        }
        names = names.filter { clients.contains($0.key) }
    }

    /// The candidates that match the app id, or all of them if none does. The oldest first.
    mutating func of(_ appID: String, among candidates: Set<ProcessIdentity>) -> [ProcessIdentity] {
        var best = ProgramName.Match.none
        var found: [ProcessIdentity] = []
        let command = command(appID)
        for candidate in candidates.sorted(by: { ($0.startTime, $0.pid) < ($1.startTime, $1.pid) }) {
            let match = max(
                name(of: candidate).match(appID, command: command), registration(of: candidate).match(appID))
            if match > best { (best, found) = (match, []) }
            if match == best { found.append(candidate) }
        }
        return found
    }

    /// The name under which the process is registered, or the nearest registered process above it.
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
