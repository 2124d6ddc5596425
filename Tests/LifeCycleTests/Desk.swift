import AppStateContract

@testable import LifeCycle

/// A machine with several applications, users and reporters.
struct Desk: Scene {
    var machine: Machine
    var now: Microseconds = 1_000_000
    var effects: [Effect] = []
    private var nextPid: Int32 = 200

    static let user: UInt32 = 1000
    static let second: Microseconds = 1_000_000

    init(_ settings: Settings = Settings()) { machine = Machine(settings: settings) }

    init(windowsPerUser limit: Int) {
        var settings = Settings()
        settings.limits.windowsPerUser = limit
        self.init(settings)
    }

    /// A process, which is its own leader or a child of another process.
    mutating func process(
        below parent: ReportedProcess? = nil, user: UInt32 = Desk.user, in session: SessionKey? = nil
    ) -> ReportedProcess {
        nextPid += 1
        let id = ProcessID(pid: nextPid, startTime: UInt64(nextPid) * 3)
        return ReportedProcess(
            lineage: [id] + (parent?.lineage ?? []), user: user, session: session ?? .user(user))
    }

    static func reporter(
        _ connection: ConnectionName = ":1.9", user: UInt32 = Desk.user, in session: SessionKey? = nil
    ) -> ReporterIdentity {
        ReporterIdentity(connection: connection, user: user, session: session ?? .user(user))
    }

    /// Registers without a delegate, so the application is launched at once, unless `change` says otherwise.
    @discardableResult
    mutating func register(
        _ process: ReportedProcess, id: String = "org.example.A",
        _ change: (inout Registration) -> Void = { _ in }
    ) throws -> ApplicationNumber {
        guard let id = ApplicationID(id) else { throw Refusal.invalidArgument("id") }
        var registration = Registration(
            id: id, process: process.lineage[0], user: process.user, session: process.session)
        change(&registration)
        guard case .application(let number) = try perform(.register(registration)) else {
            throw Refusal.invalidArgument("no number")
        }
        return number
    }

    mutating func update(
        _ window: UInt64, _ process: ReportedProcess, focused: Bool? = nil, visible: Bool? = nil,
        minimized: Bool? = nil, by reporter: ReporterIdentity = Desk.reporter()
    ) throws {
        try perform(
            .updateWindow(
                Self.report(window, process, focused: focused, visible: visible, minimized: minimized),
                reporter))
    }

    static func report(
        _ window: UInt64, _ process: ReportedProcess, focused: Bool? = nil, visible: Bool? = nil,
        minimized: Bool? = nil
    ) -> WindowReport {
        var report = WindowReport(number: window, process: process)
        report.focused = focused
        report.visible = visible
        report.minimized = minimized
        return report
    }

    mutating func focus(
        _ process: ReportedProcess?, by reporter: ReporterIdentity = Desk.reporter()
    ) throws {
        try perform(.setFocus(process, reporter))
    }

    mutating func minimize(
        _ process: ReportedProcess, _ minimized: Bool = true, by reporter: ReporterIdentity = Desk.reporter()
    ) throws {
        try perform(.setMinimized(process, minimized, reporter))
    }

    func state(_ number: ApplicationNumber) -> LifeCycleState? { machine.applications[number]?.state }

    func states(_ numbers: ApplicationNumber...) -> [LifeCycleState?] { numbers.map(state) }

    /// Every edge since `forget`, as `1: inactive→active`.
    var edges: [String] {
        effects.compactMap { effect in
            guard case .announce(let number, let announcement, _) = effect, let edge = announcement.edge
            else { return nil }
            return "\(number): \(edge)"
        }
    }

    var forgotten: [ProcessID] {
        effects.compactMap { effect in
            if case .forget(let process) = effect { process } else { nil }
        }
    }

    var focusChanges: [SessionKey] {
        effects.compactMap { effect in
            if case .focusChanged(let session) = effect { session } else { nil }
        }
    }
}

extension Machine {
    func objections(to number: ApplicationNumber) -> [String] { applications[number].map(objections) ?? [] }

    func reclaimRank(of number: ApplicationNumber) -> ReclaimPolicy.Rank? {
        applications[number].flatMap(reclaimRank)
    }
}
