import AppStateBus
import AppStateContract
import LifeCycle
import Linux

/// org.appstate1.Reporter: what window reporters tell.
extension Daemon {
    func reporterInterface() -> Interface {
        Interface(
            BusNames.reporter,
            methods: [
                Method("SetFocus", in: [("pid", "u")]) { [unowned self] call in
                    let pid = try call.message.readUInt32()
                    let reporter = try reporter(call.member)
                    if pid == 0 {
                        try perform(.setFocus(nil, reporter))
                    } else {
                        let process = try reportedProcess(pid)
                        try withTracked(process) { () throws(MethodError) in
                            try perform(.setFocus(process, reporter))
                        }
                    }
                    try call.reply()
                },
                Method("SetMinimized", in: [("pid", "u"), ("minimized", "b")]) { [unowned self] call in
                    let pid = try call.message.readUInt32()
                    let minimized = try call.message.readBool()
                    let reporter = try reporter(call.member)
                    let process = try reportedProcess(pid)
                    try withTracked(process) { () throws(MethodError) in
                        try perform(.setMinimized(process, minimized, reporter))
                    }
                    try call.reply()
                },
                Method("UpdateWindow", in: [("window", "t"), ("pid", "u"), ("state", "a{sv}")]) {
                    [unowned self] call in
                    let window = try call.message.readUInt64()
                    let pid = try call.message.readUInt32()
                    let state = try call.message.readDictionary()
                    let reporter = try reporter(call.member)
                    let report = try WindowReport(
                        number: window, process: try reportedProcess(pid), state,
                        limit: machine.settings.limits.stringBytes)
                    try withTracked(report.process) { () throws(MethodError) in
                        try perform(.updateWindow(report, reporter))
                    }
                    try call.reply()
                },
                Method("RemoveWindow", in: [("window", "t")]) { [unowned self] call in
                    let window = try call.message.readUInt64()
                    try perform(.removeWindow(window, try reporter(call.member)))
                    try call.reply()
                },
                Method("ReplaceWindows", in: [("windows", "a(tua{sv})")]) { [unowned self] call in
                    let reporter = try reporter(call.member)
                    let reports = try readReports(call)
                    try withTracked(reports.map(\.process)) { held throws(MethodError) in
                        let present = reports.filter { $0.process.lineage.first.map(held.contains) ?? false }
                        try perform(.replaceWindows(present, reporter))
                    }
                    try call.reply()
                },
                Method("SetSession", in: [("session", "s")]) { [unowned self] call in
                    let session = try call.message.readString()
                    let reporter = try reporter(call.member)
                    guard let owner = Login.owner(ofSession: session) else {
                        throw MethodError(.invalidArgs, "No logind session \"\(session.shortened)\"")
                    }
                    guard owner == reporter.user || reporter.user == 0 else {
                        throw MethodError(
                            .accessDenied, "Session \(session.shortened) is not user \(reporter.user)'s")
                    }
                    sessions.attend(to: .login(session))
                    try perform(.setSession(.login(session), reporter))
                    try call.reply()
                },
                Method("ReplaceExemptions", in: [("exemptions", "a(us)")]) { [unowned self] call in
                    let reporter = try reporter(call.member)
                    let reports = try readExemptions(call)
                    try withTracked(reports.map(\.process)) { held throws(MethodError) in
                        let present = reports.filter { $0.process.lineage.first.map(held.contains) ?? false }
                        try perform(.replaceExemptions(present, reporter))
                    }
                    try call.reply()
                },
            ])
    }

    private func reporter(_ member: String) throws(MethodError) -> ReporterIdentity {
        let connection = try caller()
        try requireUnconfined(connection, member)
        let session = session(ofProcess: connection.pid, user: connection.user)
        sessions.attend(to: session)
        return ReporterIdentity(connection: connection.name, user: connection.user, session: session)
    }

    /// No desktop has so many windows; what is beyond is not even read.
    private static let mostWindows = 4_096

    /// A whole set of windows. Those whose process has ended meanwhile are gone, and left out.
    private func readReports(_ call: borrowing Call) throws -> [WindowReport] {
        var rows: [(window: UInt64, pid: UInt32, state: [(key: String, value: Variant)])] = []
        let message = call.message.retained()
        try message.withEntered(.array, "(tua{sv})") {
            while !message.atEnd {
                guard rows.count < Self.mostWindows else {
                    throw MethodError(.limitsExceeded, "More than \(Self.mostWindows) windows in one message")
                }
                try message.withEntered(.struct, "tua{sv}") {
                    rows.append(
                        (try message.readUInt64(), try message.readUInt32(), try message.readDictionary()))
                }
            }
        }
        var reports: [WindowReport] = []
        var seen: Set<UInt64> = []
        // Many windows are of one process.
        var known: [UInt32: ReportedProcess] = [:]
        for row in rows {
            guard seen.insert(row.window).inserted else {
                throw MethodError(.invalidArgs, "Window \(row.window) is named twice")
            }
            if row.pid == 0 { throw MethodError(.invalidArgs, "Window \(row.window) has no process: pid 0") }
            let process: ReportedProcess
            do {
                process = try known[row.pid] ?? reportedProcess(row.pid)
                known[row.pid] = process
            } catch {
                continue
            }
            reports.append(
                try WindowReport(
                    number: row.window, process: process, row.state,
                    limit: machine.settings.limits.stringBytes))
        }
        return reports
    }

    /// A whole set of exemptions. Those of processes that have ended meanwhile are left out; more than the life cycle
    /// takes are not even read.
    private func readExemptions(_ call: borrowing Call) throws -> [ExemptionReport] {
        var rows: [(pid: UInt32, reason: String)] = []
        let message = call.message.retained()
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
        for row in rows {
            if row.pid == 0 {
                throw MethodError(.invalidArgs, "Exemption \(row.reason.shortened) has no process: pid 0")
            }
            guard ExemptionReason.isValid(row.reason) else {
                throw MethodError(
                    .invalidArgs, "Exemption \"\(row.reason.shortened)\" is not 1 to 64 of a-z, 0-9 and -")
            }
        }
        return rows.compactMap { row in
            guard let process = try? reportedProcess(row.pid) else { return nil }
            return ExemptionReport(process: process, reason: row.reason)
        }
    }
}
