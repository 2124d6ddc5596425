import AppStateBus
import AppStateContract
import LifeCycle
import Linux

/// The decoding of whole sets that a reporter sends. Windows and objections of processes that have ended are left out.
extension Daemon {
    private typealias WindowRow = (window: UInt64, pid: UInt32, state: [(key: String, value: Variant)])
    private typealias ObjectionRow = (pid: UInt32, reason: String)

    /// The most bytes of a reporter's whole set of windows: 1,024 windows with titles.
    static var mostBytesOfWindows: Int { 1 << 20 }

    /// ReplaceWindows.
    func replaceWindows(_ message: borrowing Message, _ reporter: ReporterIdentity) throws {
        let rows = try windowRows(in: message)
        let processes = try reportedProcesses(rows.map(\.pid), by: reporter)
        let limit = core.machine.settings.limits.stringBytes
        var reports: [WindowReport] = []
        for row in rows {
            guard let process = processes[row.pid] else { continue }
            reports.append(
                try WindowReport(number: row.window, process: process, row.state, limit: limit))
        }
        try withTracked(reports.map(\.process)) { held throws(MethodError) in
            let present = reports.filter { $0.process.lineage.first.map(held.contains) ?? false }
            try perform(.replaceWindows(present, reporter))
        }
    }

    private func windowRows(in message: borrowing Message) throws -> [WindowRow] {
        var rows: [WindowRow] = []
        var seen: Set<UInt64> = []
        _ = try message.enter(.array, "(tua{sv})")
        while !message.atEnd {
            guard rows.count < Machine.windowsPerReporter else {
                throw MethodError(
                    .limitsExceeded, "More than \(Machine.windowsPerReporter) windows in one message")
            }
            _ = try message.enter(.struct, "tua{sv}")
            let row: WindowRow = (
                try message.readUInt64(), try message.readUInt32(), try message.readDictionary()
            )
            try message.exit()
            guard seen.insert(row.window).inserted else {
                throw MethodError(.invalidArgs, "Window \(row.window) is named twice")
            }
            if row.pid == 0 { throw MethodError(.invalidArgs, "Window \(row.window) has no process: pid 0") }
            rows.append(row)
        }
        return rows
    }

    /// ReplaceObjections.
    func replaceObjections(_ message: borrowing Message, _ reporter: ReporterIdentity) throws {
        let rows = try objectionRows(in: message)
        let processes = try reportedProcesses(rows.map(\.pid), by: reporter)
        let reports = rows.compactMap { row in
            processes[row.pid].map { ObjectionReport(process: $0, reason: row.reason) }
        }
        try withTracked(reports.map(\.process)) { held throws(MethodError) in
            let present = reports.filter { $0.process.lineage.first.map(held.contains) ?? false }
            try perform(.replaceObjections(present, reporter))
        }
    }

    private func objectionRows(in message: borrowing Message) throws -> [ObjectionRow] {
        var rows: [ObjectionRow] = []
        _ = try message.enter(.array, "(us)")
        while !message.atEnd {
            guard rows.count < Machine.objectionsPerReporter else {
                throw MethodError(
                    .limitsExceeded, "More than \(Machine.objectionsPerReporter) objections in one message")
            }
            _ = try message.enter(.struct, "us")
            let row: ObjectionRow = (try message.readUInt32(), try message.readString())
            try message.exit()
            if row.pid == 0 {
                throw MethodError(.invalidArgs, "Objection \(row.reason.shortened) has no process: pid 0")
            }
            guard ObjectionReason.isValid(row.reason) else {
                throw MethodError(
                    .invalidArgs,
                    "Objection \"\(row.reason.shortened)\" is not 1 to 64 characters of a-z, 0-9 and -")
            }
            rows.append(row)
        }
        return rows
    }

    /// The named processes that exist. Throws if the daemon has no descriptors left: a process that it cannot examine
    /// may exist all the same.
    private func reportedProcesses(
        _ pids: [UInt32], by reporter: ReporterIdentity
    ) throws(MethodError) -> [UInt32: ReportedProcess] {
        var processes: [UInt32: ReportedProcess] = [:]
        for pid in Set(pids) {
            do {
                processes[pid] = try reportedProcess(pid, by: reporter)
            } catch {
                guard error.name == ErrorName.noSuchProcess.rawValue else { throw error }
            }
        }
        return processes
    }
}

extension WindowReport {
    /// A window's state as `UpdateWindow` passes it.
    init(
        number: UInt64, process: ReportedProcess, _ entries: [(key: String, value: Variant)], limit: Int
    ) throws(MethodError) {
        self.init(number: number, process: process)
        var seen: Set<WindowKeyName> = []
        for (key, value) in entries {
            guard let name = WindowKeyName(rawValue: key) else {
                throw MethodError(.invalidArgs, "A window has no key \"\(key.shortened)\"")
            }
            guard seen.insert(name).inserted else {
                throw MethodError(.invalidArgs, "The key \"\(key)\" is given twice")
            }
            switch name {
            case .focused: focused = try value.bool(key)
            case .visible: visible = try value.bool(key)
            case .minimized: minimized = try value.bool(key)
            case .unsavedChanges: unsavedChanges = try value.bool(key)
            case .title: title = try value.string(key, limit: limit)
            case .appID: appID = try value.string(key, limit: limit)
            }
        }
    }
}
