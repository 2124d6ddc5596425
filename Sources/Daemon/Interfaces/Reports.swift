import AppStateBus
import AppStateContract
import LifeCycle
import Linux

/// The processes of a call that names many. They are examined and held one by one, no matter how long this
/// takes.
final class NamedProcesses {
    private let daemon: Daemon
    private var open: [UInt32]
    private var known: [UInt32: ReportedProcess] = [:]
    /// Processes that are held for this call only.
    private var new: Set<ProcessID> = []

    init(_ pids: [UInt32], _ daemon: Daemon) {
        self.daemon = daemon
        var seen: Set<UInt32> = []
        open = pids.filter { seen.insert($0).inserted }.reversed()
    }

    deinit { daemon.letGo(Array(new)) }

    var left: Int { open.count }

    /// The most processes that are examined at once to find whose units the named ones are in.
    private static let mostExamined = 16

    /// Examines the next processes, all of them unless this takes long. Throws as `resolveNext` does.
    func resolveFew(for reporter: ReporterIdentity) throws(MethodError) {
        let end = daemon.units.examined + Self.mostExamined
        while left > 0, daemon.units.examined < end { try resolveNext(for: reporter) }
    }

    /// Examines the next process. One that has ended meanwhile is left out. Throws if the daemon has no descriptors left:
    /// a process that it cannot examine may exist all the same.
    func resolveNext(for reporter: ReporterIdentity) throws(MethodError) {
        guard let pid = open.popLast(), let process = try examine(pid, for: reporter),
            let id = process.lineage.first, try holds(id)
        else { return }
        known[pid] = process
    }

    /// Holds a process, also if it has been released since it was examined; false: it has ended.
    func holds(_ id: ProcessID) throws(MethodError) -> Bool {
        if daemon.processes.isTracked(id) { return true }
        guard try daemon.isHeld(id) else { return false }
        new.insert(id)
        return true
    }

    private func examine(_ pid: UInt32, for reporter: ReporterIdentity) throws(MethodError)
        -> ReportedProcess?
    {
        do {
            return try daemon.reportedProcess(pid, by: reporter)
        } catch {
            if error.name == ErrorName.noSuchProcess.rawValue { return nil }
            throw error
        }
    }

    /// nil: the process has ended, as far as is known.
    subscript(_ pid: UInt32) -> ReportedProcess? { known[pid] }
}

/// A reporter's whole set of windows, which may be long. It is read, examined and applied in steps, and answered at the
/// end.
final class WindowSet {
    private typealias Row = (window: UInt64, pid: UInt32, state: [(key: String, value: Variant)])

    private enum Step {
        case reading
        case resolving
    }

    private let daemon: Daemon
    private let reporter: ReporterIdentity
    private let message: Message
    private var call: PendingCall?
    private var rows: [Row] = []
    private var seen: Set<UInt64> = []
    private var isRead = false
    private var processes: NamedProcesses?
    private var step = Step.reading

    /// Up to this many windows are applied at once, by the call's handler.
    private static let few = 16
    /// The number of windows that are read in one step.
    private static let atOnce = 4

    init(_ message: borrowing Message, _ reporter: ReporterIdentity, _ daemon: Daemon) throws {
        self.message = message.retained()
        self.reporter = reporter
        self.daemon = daemon
        _ = try self.message.enter(.array, "(tua{sv})")
    }

    /// Applies the set if it is short and its processes are examined quickly.
    ///
    /// - Returns: whether it was applied; if not, call `take` for each step.
    func takeIfShort() throws -> Bool {
        try read(atMost: Self.few)
        guard isRead, Set(rows.map(\.pid)).count <= Self.few * 3 / 4 else { return false }
        let processes = NamedProcesses(rows.map(\.pid), daemon)
        try processes.resolveFew(for: reporter)
        guard processes.left == 0 else {
            self.processes = processes
            step = .resolving
            return false
        }
        try apply(processes)
        return true
    }

    private func apply(_ processes: NamedProcesses) throws {
        let reports = try reports(processes)
        // A process may have ended, or been released, since it was examined.
        try daemon.withTracked(reports.map(\.process)) { held throws(MethodError) in
            let present = reports.filter { $0.process.lineage.first.map(held.contains) ?? false }
            try daemon.perform(.replaceWindows(present, reporter))
        }
    }

    /// Takes the next step. Returns whether it was the last one, with which the call is answered.
    func take(_ call: PendingCall) -> Bool {
        do {
            guard try takeStep() else { return false }
            call.reply()
        } catch let error as MethodError {
            call.fail(error)
        } catch let failure as BusFailure {
            call.fail(MethodError(failure))
        } catch {
            call.fail(.failed("\(error)"))
        }
        processes = nil
        return true
    }

    private func takeStep() throws -> Bool {
        switch step {
        case .reading:
            try read(atMost: rows.count + Self.atOnce)
            if isRead {
                processes = NamedProcesses(rows.map(\.pid), daemon)
                step = .resolving
            }
        case .resolving:
            guard let processes, processes.left > 0 else {
                if let processes { try apply(processes) }
                return true
            }
            try processes.resolveNext(for: reporter)
        }
        return false
    }

    private func read(atMost most: Int) throws {
        while rows.count < most {
            if message.atEnd {
                isRead = true
                return
            }
            guard rows.count < Machine.windowsPerReporter else {
                throw MethodError(
                    .limitsExceeded, "More than \(Machine.windowsPerReporter) windows in one message")
            }
            _ = try message.enter(.struct, "tua{sv}")
            let row: Row = (
                try message.readUInt64(), try message.readUInt32(),
                try message.readDictionary(atMost: WindowReport.mostEntries, of: WindowReport.types)
            )
            try message.exit()
            guard seen.insert(row.window).inserted else {
                throw MethodError(.invalidArgs, "Window \(row.window) is named twice")
            }
            if row.pid == 0 { throw MethodError(.invalidArgs, "Window \(row.window) has no process: pid 0") }
            rows.append(row)
        }
        if message.atEnd { isRead = true }
    }

    /// Windows whose process has ended in the meantime are gone, and are left out.
    private func reports(_ processes: NamedProcesses) throws(MethodError) -> [WindowReport] {
        let limit = daemon.machine.settings.limits.stringBytes
        var reports: [WindowReport] = []
        for row in rows {
            guard let process = processes[row.pid] else { continue }
            reports.append(
                try WindowReport(number: row.window, process: process, row.state, limit: limit))
        }
        return reports
    }
}

/// A reporter's whole set of exemptions, handled in the same way.
final class ExemptionSet {
    private typealias Row = (pid: UInt32, reason: String)

    private let daemon: Daemon
    private let reporter: ReporterIdentity
    private let rows: [Row]
    private let processes: NamedProcesses

    private static let few = 12

    init(_ message: borrowing Message, _ reporter: ReporterIdentity, _ daemon: Daemon) throws {
        self.daemon = daemon
        self.reporter = reporter
        rows = try Self.rows(in: message)
        for row in rows {
            if row.pid == 0 {
                throw MethodError(.invalidArgs, "Exemption \(row.reason.shortened) has no process: pid 0")
            }
            guard ExemptionReason.isValid(row.reason) else {
                throw MethodError(
                    .invalidArgs,
                    "Exemption \"\(row.reason.shortened)\" is not 1 to 64 characters of a-z, 0-9 and -")
            }
        }
        processes = NamedProcesses(rows.map(\.pid), daemon)
    }

    /// Not in the initializer: Swift 6.0.3 crashes if a throwing initializer keeps a message of its own.
    private static func rows(in message: borrowing Message) throws -> [Row] {
        var rows: [Row] = []
        let message = message.retained()
        try message.withEntered(.array, "(us)") {
            while !message.atEnd {
                guard rows.count < Machine.exemptionsPerUser else {
                    throw MethodError(
                        .limitsExceeded, "More than \(Machine.exemptionsPerUser) exemptions in one message")
                }
                try message.withEntered(.struct, "us") {
                    rows.append((try message.readUInt32(), try message.readString()))
                }
            }
        }
        return rows
    }

    /// Applies the set if it is short and its processes are examined quickly.
    ///
    /// - Returns: whether it was applied; if not, call `take` for each step.
    func takeIfShort() throws(MethodError) -> Bool {
        guard processes.left <= Self.few else { return false }
        try processes.resolveFew(for: reporter)
        guard processes.left == 0 else { return false }
        let present = try present()
        try daemon.perform(.replaceExemptions(present, reporter))
        return true
    }

    /// Takes the next step. Returns whether it was the last one, with which the call is answered.
    func take(_ call: PendingCall) -> Bool {
        do throws(MethodError) {
            if processes.left > 0 {
                try processes.resolveNext(for: reporter)
                return false
            }
            let present = try present()
            try daemon.perform(.replaceExemptions(present, reporter))
            call.reply()
        } catch {
            call.fail(error)
        }
        return true
    }

    /// The exemptions, without those of processes that have ended meanwhile.
    private func present() throws(MethodError) -> [ExemptionReport] {
        var reports: [ExemptionReport] = []
        for row in rows {
            guard let process = processes[row.pid], let id = process.lineage.first, try processes.holds(id)
            else { continue }
            reports.append(ExemptionReport(process: process, reason: row.reason))
        }
        return reports
    }
}
