import AppStateContract
import Linux

/// The processes that must not be suspended by policy, as the watchers find them.
final class Objections {
    private let daemon: DaemonConnection
    private let proc = Proc()
    /// By the watcher, of each reason.
    private var found: [ObjectionReason: [String: Set<ProcessIdentity>]] = [:]

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
        guard found[reason]?[watcher] ?? [] != processes else { return }
        found[reason, default: [:]][watcher] = processes
        report()
    }

    /// Tells the daemon which applications are exempt. There is no objection to a process that has ended, even if another
    /// process has its number by now.
    func report() {
        let registered = daemon.applications.registered
        let rows = ObjectionReason.allCases.flatMap { reason in
            let alive = found[reason, default: [:]].values.joined().filter {
                (try? proc.identity(of: $0.pid)) == $0
            }
            return Set(alive.flatMap { proc.representatives(of: $0.pid, among: registered) }).sorted().map {
                Objection(pid: UInt32($0), reason: reason)
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

    /// The processes by which the daemon recognizes the application of a process that must not be suspended.
    ///
    /// The daemon looks for a registered process among a process's ancestors. A Flatpak's proxy, through which the
    /// application uses the session bus, descends from another process, and so does a second sandbox of the application.
    /// Such a process is recognized by its unit: `app-flatpak-ID-INSTANCE.scope`.
    func representatives(of pid: Int32, among registered: Set<Int32>) -> Set<Int32> {
        func unit(of pid: Int32) -> String? {
            (try? unifiedCgroup(of: pid)).flatMap { Sandbox.flatpak(ofCgroup: $0) }
        }
        guard let own = unit(of: pid), application(of: pid, among: registered) == nil else { return [pid] }
        let same = registered.filter { unit(of: $0) == own }
        if !same.isEmpty { return same }
        // Each instance has a unit of its own: a second sandbox counts for all instances of its application.
        let id = ApplicationUnit(inPath: own)?.application
        let others = registered.filter { other in
            unit(of: other).flatMap { ApplicationUnit(inPath: $0)?.application }.map { $0 == id } ?? false
        }
        return others.isEmpty ? [pid] : others
    }
}
