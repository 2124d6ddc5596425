import AppStateBus
import AppStateContract
import LifeCycle
import Linux
import Systemd

private typealias Name = ReporterMethod

/// org.appstate1.Reporter: the interface for window reporters.
extension Daemon {
    func reporterInterface() -> Interface {
        Interface(
            BusNames.reporter,
            methods: [
                Method(Name.setFocus, in: [("pid", "u")]) { [unowned self] call in
                    let pid = try call.message.readUInt32()
                    let reporter = try reporter(call.member)
                    if pid == 0 {
                        try perform(.setFocus(nil, reporter))
                    } else {
                        let process = try reportedProcess(pid, by: reporter)
                        try withTracked(process) { () throws(MethodError) in
                            try perform(.setFocus(process, reporter))
                        }
                    }
                    try call.reply()
                },
                Method(Name.setMinimized, in: [("pid", "u"), ("minimized", "b")]) { [unowned self] call in
                    let pid = try call.message.readUInt32()
                    let minimized = try call.message.readBool()
                    let reporter = try reporter(call.member)
                    let process = try reportedProcess(pid, by: reporter)
                    try withTracked(process) { () throws(MethodError) in
                        try perform(.setMinimized(process, minimized, reporter))
                    }
                    try call.reply()
                },
                Method(Name.updateWindow, in: [("window", "t"), ("pid", "u"), ("state", "a{sv}")]) {
                    [unowned self] call in
                    let window = try call.message.readUInt64()
                    let pid = try call.message.readUInt32()
                    let state = try call.message.readDictionary()
                    let reporter = try reporter(call.member)
                    let report = try WindowReport(
                        number: window, process: try reportedProcess(pid, by: reporter), state,
                        limit: core.machine.settings.limits.stringBytes)
                    try withTracked(report.process) { () throws(MethodError) in
                        try perform(.updateWindow(report, reporter))
                    }
                    try call.reply()
                },
                Method(Name.removeWindow, in: [("window", "t")]) { [unowned self] call in
                    let window = try call.message.readUInt64()
                    try perform(.removeWindow(window, try reporter(call.member)))
                    try call.reply()
                },
                Method(
                    Name.replaceWindows, in: [("windows", "a(tua{sv})")], limit: Self.mostBytesOfWindows
                ) { [unowned self] call in
                    try replaceWindows(call.message, try reporter(call.member))
                    try call.reply()
                },
                Method(Name.setSession, in: [("session", "s")]) { [unowned self] call in
                    let session = try call.message.readString()
                    let reporter = try reporter(call.member)
                    guard let owner = Login.owner(ofSession: session) else {
                        throw MethodError(.invalidArgs, "No logind session \"\(session.shortened)\"")
                    }
                    guard owner == reporter.user || reporter.user == 0 else {
                        throw MethodError(
                            .accessDenied,
                            "Session \(session.shortened) does not belong to user \(reporter.user)")
                    }
                    sessions.attend(to: .login(session))
                    try perform(.setSession(.login(session), reporter))
                    try call.reply()
                },
                Method(Name.replaceObjections, in: [("objections", "a(us)")]) { [unowned self] call in
                    try replaceObjections(call.message, try reporter(call.member))
                    try call.reply()
                },
                Method(Name.reportDemand, in: [("pid", "u"), ("reason", "s"), ("by", "u")]) {
                    [unowned self] call in
                    let pid = try call.message.readUInt32()
                    let reason = try call.message.readString()
                    let other = try call.message.readUInt32()
                    let reporter = try reporter(call.member)
                    guard ObjectionReason.isValid(reason) else {
                        throw MethodError(
                            .invalidArgs, "\"\(reason.shortened)\" is not a word [a-z0-9-]{1,64}")
                    }
                    let process = try reportedProcess(pid, by: reporter)
                    // Its name is taken now, because it may end as soon as it has its answer.
                    let name = name(of: other, knownTo: reporter)
                    let why = name.isEmpty ? reason : "\(reason) by \(name)"
                    let known = DemandReason(rawValue: reason)
                    let need: Need =
                        known?.asksToEnd == true
                        ? .end : known?.asksForAnswer == true ? .answer : known == .message ? .read : .act
                    try perform(.demand(process, why, reporter, need))
                    try call.reply()
                },
            ])
    }

    /// What runs in a process that needs an application; empty: it is not known, or not the reporter's business.
    private func name(of pid: UInt32, knownTo reporter: ReporterIdentity) -> String {
        guard let pid = Int32(exactly: pid), pid != 0, let owner = try? proc.status(pid).owner,
            reporter.user == 0 || owner.isWholly(reporter.user)
        else { return "" }
        return proc.name(of: pid)
    }

    private func reporter(_ member: String) throws(MethodError) -> ReporterIdentity {
        let connection = try access.unconfinedCaller(of: member)
        let session = sessions.key(ofProcess: connection.pid, user: connection.user)
        sessions.attend(to: session)
        return ReporterIdentity(connection: connection.name, user: connection.user, session: session)
    }
}
