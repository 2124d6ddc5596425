import AppStateContract

@testable import LifeCycle

/// A machine with one application, and what was announced about it.
struct Stage: Scene {
    var machine: Machine
    var now: Microseconds = 1_000_000
    var effects: [Effect] = []
    var finding: CheckFinding? = .clear(isStopped: true)
    let number = ApplicationNumber(1)
    let process = ProcessID(pid: 100, startTime: 7)

    static let user: UInt32 = 1000
    static let delegate = ":1.5"

    init(_ settings: Settings = Settings()) { machine = Machine(settings: settings) }

    /// A stage with a launched application in the background.
    static func launched(
        delegate: Bool = true, suspension: SuspensionPolicy = .manual, _ settings: Settings = Settings(),
        _ change: (inout Registration) -> Void = { _ in }
    ) throws -> Stage {
        var stage = Stage(settings)
        try stage.register(delegate: delegate, suspension: suspension, change)
        if delegate { try stage.perform(.finishLaunching(stage.number, by: Self.delegate)) }
        stage.effects = []
        return stage
    }

    mutating func register(
        delegate: Bool = true, suspension: SuspensionPolicy = .manual,
        _ change: (inout Registration) -> Void = { _ in }
    ) throws {
        guard let id = ApplicationID("org.example.Editor") else { return }
        var registration = Registration(id: id, process: process, user: Self.user, session: .user(Self.user))
        registration.delegate = delegate ? Self.delegate : nil
        registration.suspension = suspension
        change(&registration)
        try perform(.register(registration))
    }

    var application: Application {
        guard let application = machine.applications[number] else { preconditionFailure("no application") }
        return application
    }

    var state: LifeCycleState { application.state }
    var holds: [HoldReason] { application.allHolds.map(\.reason) }
    var reported: ReportedProcess {
        ReportedProcess(lineage: [process], user: Self.user, session: .user(Self.user))
    }
    var reporter: ReporterIdentity {
        ReporterIdentity(connection: ":1.9", user: Self.user, session: .user(Self.user))
    }

    mutating func focus() throws { try perform(.setFocus(reported, reporter)) }
    mutating func unfocus() throws { try perform(.setFocus(nil, reporter)) }
    mutating func minimize(_ minimized: Bool = true) throws {
        try perform(.setMinimized(reported, minimized, reporter))
    }
    mutating func stopBySomebody() { handle(.stopped(number, holder: "pid 7")) }

    mutating func bring(to state: LifeCycleState) throws {
        switch state {
        case .notRunning: break
        case .active: try focus()
        case .inactive:
            try focus()
            try unfocus()
        case .background: try minimize()
        case .suspended: stopBySomebody()
        }
    }

    func heard(_ audience: Audience) -> [Announcement] {
        effects.compactMap { effect in
            switch effect {
            case .announce(_, let announcement, let to): to.contains(audience) ? announcement : nil
            case .announceEnd(_, let announcement, _): audience == .delegate ? announcement : nil
            default: nil
            }
        }
    }

    /// What an audience received, as words: `WillResignActive`, `active→inactive`.
    func words(_ audience: Audience) -> [String] {
        heard(audience).map { $0.edge?.description ?? $0.signal.rawValue }
    }
}
