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
        let processes = Set(processes.compactMap { try? proc.identity(of: $0) })
        let source = Source(reason: reason, watcher: watcher)
        guard found[source] ?? [] != processes else { return }
        found[source] = processes.isEmpty ? nil : processes
        report()
    }

    /// Tells the daemon which applications are exempt. There is no objection to a process that has ended, even if another
    /// process has its number by now.
    func report() {
        let registered = daemon.applications.registered
        var pids: [ObjectionReason: Set<Int32>] = [:]
        for (source, processes) in found {
            for process in processes where (try? proc.identity(of: process.pid)) == process {
                // The daemon looks for a registered process among the ancestors of a process only.
                let isSandboxed = proc.unit(of: process.pid)?.isSandbox == true
                let mains = isSandboxed ? proc.applications(of: process.pid, among: registered) : []
                pids[source.reason, default: []].formUnion(mains.isEmpty ? [process.pid] : mains)
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

extension Proc {
    /// The main process of the application that a process belongs to: the first registered process among the process
    /// itself, its parent and so on. Nil: it belongs to none.
    ///
    /// - Parameter registered: the main processes of all applications.
    func application(of process: Int32, among registered: Set<Int32>) -> Int32? {
        lineage(of: process).first { registered.contains($0.pid) }?.pid
    }

    /// The main processes of the applications that a process belongs to: the same, else those of its unit.
    ///
    /// A Flatpak's proxy, through which the application uses the session bus, descends from another process, and so does a
    /// second sandbox of the application, which has a unit of its own.
    func applications(of process: Int32, among registered: Set<Int32>) -> Set<Int32> {
        if let main = application(of: process, among: registered) { return [main] }
        guard let unit = unit(of: process) else { return [] }
        let others = registered.compactMap { main in self.unit(of: main).map { (main, $0) } }
        let same = others.filter { $0.1 == unit }
        let isWanted = { (other: ApplicationUnit) in
            unit.isSandbox && other.isSandbox && unit.application != nil
                && other.application == unit.application
        }
        return Set((same.isEmpty ? others.filter { isWanted($0.1) } : same).map(\.0))
    }

    func unit(of pid: Int32) -> ApplicationUnit? {
        (try? unifiedCgroup(of: pid)).flatMap { ApplicationUnit(inPath: $0) }
    }
}
