import AppStateContract
import Linux

/// The processes that must not be suspended by policy, as the watchers find them.
final class Objections {
    private let daemon: DaemonConnection
    private let proc = Proc()
    private var found: [Source: Set<ProcessIdentity>] = [:]

    private struct Source: Hashable {
        let reason: ObjectionReason
        let watcher: String
    }

    /// The daemon accepts this many rows from one user (org.appstate1.Reporter, "ReplaceObjections").
    private static let mostRows = 256

    /// - Parameter daemon: is told all objections whenever they change.
    init(daemon: DaemonConnection) { self.daemon = daemon }

    /// Sets the processes that a watcher has found for a reason.
    ///
    /// - Parameter watcher: tells it from another one that finds the same reason.
    func set(_ reason: ObjectionReason, _ processes: Set<Int32>, by watcher: String = "") {
        set(reason, among: Set(processes.compactMap { try? proc.identity(of: $0) }), by: watcher)
    }

    func set(_ reason: ObjectionReason, among processes: Set<ProcessIdentity>, by watcher: String = "") {
        let source = Source(reason: reason, watcher: watcher)
        guard found[source] ?? [] != processes else { return }
        found[source] = processes.isEmpty ? nil : processes
        report()
    }

    /// Tells the daemon which applications are exempt. There is no objection to a process that has ended, even if another
    /// process has its number by now.
    func report() {
        var representatives = Representatives(proc, registered: daemon.applications.registered)
        var pids: [ObjectionReason: Set<Int32>] = [:]
        for (source, processes) in found {
            for process in processes where (try? proc.identity(of: process.pid)) == process {
                pids[source.reason, default: []].formUnion(representatives.of(process.pid))
            }
        }
        let rows = ObjectionReason.allCases.flatMap { reason in
            (pids[reason] ?? []).sorted().compactMap { pid in
                UInt32(exactly: pid).map { Objection(pid: $0, reason: reason) }
            }
        }
        daemon.objections = Array(rows.prefix(Self.mostRows))
        daemon.reconcile()
    }
}

/// The processes by which the daemon recognizes the application of a process that must not be suspended.
///
/// The daemon looks for a registered process among a process's ancestors. A Flatpak's proxy, through which the
/// application uses the session bus, descends from another process, and so does a second sandbox of the application. Such
/// a process is recognized by its unit: `app-flatpak-ID-INSTANCE.scope`.
struct Representatives {
    private let proc: Proc
    private let registered: Set<Int32>
    /// The Flatpaks' units among those of `registered`.
    private lazy var units = Self.units(of: registered, proc)

    /// - Parameter registered: the main processes of all applications.
    init(_ proc: Proc, registered: Set<Int32>) {
        self.proc = proc
        self.registered = registered
    }

    /// The processes to report instead of `pid`.
    mutating func of(_ pid: Int32) -> Set<Int32> {
        guard let path = try? proc.unifiedCgroup(of: pid), let flatpak = Sandbox.flatpak(ofCgroup: path),
            !proc.lineage(of: pid).contains(where: { registered.contains($0.pid) })
        else { return [pid] }
        let same = units.filter { $0.value == flatpak }
        if !same.isEmpty { return Set(same.keys) }
        // Each instance has a unit of its own: a second sandbox counts for all instances of its application.
        if let id = ApplicationUnit(inPath: flatpak)?.application {
            let others = units.filter { ApplicationUnit(inPath: $0.value)?.application == id }
            if !others.isEmpty { return Set(others.keys) }
        }
        return [pid]
    }

    private static func units(of pids: Set<Int32>, _ proc: Proc) -> [Int32: String] {
        var units: [Int32: String] = [:]
        for pid in pids {
            units[pid] = (try? proc.unifiedCgroup(of: pid)).flatMap { Sandbox.flatpak(ofCgroup: $0) }
        }
        return units
    }
}

extension Proc {
    /// The main process of the application that a process belongs to: the first registered process among the process
    /// itself, its parent and so on. Nil: it belongs to none.
    ///
    /// - Parameter registered: the main processes of all applications.
    func application(of process: Int32, among registered: Set<Int32>) -> Int32? {
        lineage(of: process).first { registered.contains($0.pid) }?.pid
    }
}
