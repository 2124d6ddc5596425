import AppStateBus
import AppStateContract
import Desktop
import Glibc
import Linux
import Systemd

/// Starts applications by their desktop entries and knows how they ended. Each process waits at a gate until the daemon
/// has registered it.
final class Launcher {
    /// The answer to the daemon about a launch.
    struct Started {
        let number: UInt64
        /// A pidfd, open as long as the launch is remembered.
        let descriptor: Int32
        let isHeld: Bool
        /// Empty: there is no unit.
        let unit: String
    }

    private let loop: EventLoop
    private let journal: Journal
    private let tools: LaunchTools
    private var launches: [UInt64: Launch] = [:]
    private var lastNumber: UInt64 = 0
    /// Starts for applications that already run. They are not launches of the daemon, and are kept until the
    /// desktop no longer shows them.
    private var errands: [ObjectIdentifier: Launch] = [:]
    private var timer: Timer?

    /// The maximum number of launches that have begun and are not settled.
    private static let mostUnsettled = 16
    /// The maximum number of launches that are remembered although their processes have ended.
    private static let mostEnded = 64
    /// The maximum number of launches that are remembered. Each needs two descriptors.
    private static let mostLaunches = min(1_024, max(mostEnded, ResourceLimit.openFiles / 4))
    /// How long the daemon may take to settle a launch, in microseconds.
    private static let patience: UInt64 = 30_000_000

    /// - Parameters:
    ///   - session: the session bus.
    ///   - user: the user's bus, on which the service manager is; usually the same bus.
    init(loop: EventLoop, journal: Journal, session: SessionBus, user: SessionBus) throws(BusFailure) {
        self.loop = loop
        self.journal = journal
        // If our program was replaced, the file that has taken its place.
        let executable = (try? Proc().formerExecutable(of: getpid())) ?? "/proc/self/exe"
        tools = LaunchTools(
            starter: ProgramStarter(loop: loop, bus: try? user.connection(), executable: executable),
            notices: try StartupNotices(loop: loop, journal: journal), session: session, journal: journal)
        timer = try loop.timer { [unowned self] in expire() }
    }

    /// Launches that have a window are no longer announced.
    ///
    /// - Parameter hasWindow: whether the application with this main process has one.
    func endNotices(where hasWindow: (Int32) -> Bool) {
        for launch in [launches.values.map(\.self), errands.values.map(\.self)].joined() {
            launch.endNotice(where: hasWindow)
        }
        forgetErrands()
    }

    // MARK: Requests from the daemon

    /// Starts a desktop entry.
    ///
    /// - Parameter answered: called once.
    func start(
        _ id: String, _ request: LaunchRequest,
        _ answered: @escaping (Result<Started, MethodError>) -> Void
    ) {
        guard launches.values.count(where: { !$0.isSettled }) < Self.mostUnsettled else {
            return answered(
                .failure(
                    MethodError(
                        ErrorName.limitsExceeded.rawValue,
                        "\(Self.mostUnsettled) launches are already in progress")))
        }
        makeRoom()
        lastNumber += 1
        let number = lastNumber
        let launch = Launch(id, request, isGated: true, tools: tools)
        launches[number] = launch
        launch.begin { [unowned self] error in
            if let error {
                launches[number] = nil
                return answered(.failure(error))
            }
            guard let descriptor = launch.descriptor else {
                launches[number] = nil
                return answered(.failure(.failed("\(id) has no process")))
            }
            launch.deadline = loop.now + Self.patience
            arm()
            answered(
                .success(
                    Started(
                        number: number, descriptor: descriptor, isHeld: launch.isHeld, unit: launch.unit)))
        }
    }

    /// Opens the gate.
    ///
    /// - Parameter answered: called once, when the program runs, or with the reason why it does not.
    func proceed(_ number: UInt64, _ answered: @escaping (MethodError?) -> Void) {
        guard let launch = launches[number], launch.proceed(answered) else {
            return answered(Self.noLaunch(number))
        }
        arm()
    }

    /// Ends the process at the gate.
    func cancel(_ number: UInt64) throws(MethodError) {
        guard let launch = launches[number] else { throw Self.noLaunch(number) }
        launch.cancel()
        arm()
    }

    /// Cancels all launches that wait.
    func cancelAll() {
        for launch in launches.values where !launch.isSettled { launch.cancel() }
        arm()
    }

    /// Reports how the process of a launch ended.
    func tellExit(of number: UInt64, _ answered: @escaping (LaunchExit) -> Void) {
        guard let launch = launches[number] else { return answered(LaunchExit(.unknown)) }
        launch.tellExit(answered)
    }

    /// Starts a desktop entry for an application that already runs and must open URLs or files.
    ///
    /// - Parameter answered: gets the reason for a failure; nil: it was started.
    func open(_ id: String, _ request: LaunchRequest, _ answered: @escaping (MethodError?) -> Void) {
        forgetErrands()
        guard errands.count < Self.mostUnsettled else {
            return answered(
                MethodError(
                    ErrorName.limitsExceeded.rawValue, "\(Self.mostUnsettled) starts are under way"))
        }
        let launch = Launch(id, request, isGated: false, tools: tools)
        errands[ObjectIdentifier(launch)] = launch
        launch.begin { [unowned self] error in
            forgetErrands()
            answered(error)
        }
    }

    private func forgetErrands() { errands = errands.filter { !$0.value.isOver } }

    private static func noLaunch(_ number: UInt64) -> MethodError {
        MethodError(ErrorName.noSuchProcess.rawValue, "there is no pending launch \(number)")
    }

    // MARK: Limits

    /// Forgets the oldest launches that have ended, and only if that is not enough, the oldest that run.
    private func makeRoom() {
        let settled = launches.filter { $0.value.isSettled }.keys.sorted()
        let running = Set(settled.filter(isRunning))
        let ended = settled.filter { !running.contains($0) }
        let excess = max(0, ended.count + 1 - Self.mostEnded, launches.count + 1 - Self.mostLaunches)
        for number in (ended + running.sorted()).prefix(excess) { launches[number] = nil }
    }

    private func isRunning(_ number: UInt64) -> Bool {
        var isRunning = false
        // For a process that runs, the answer comes at once.
        launches[number]?.tellExit { isRunning = $0 == .running }
        return isRunning
    }

    private func arm() {
        let times = launches.values.filter { !$0.isSettled }.compactMap(\.deadline)
        if let next = times.min() { timer?.arm(at: next) } else { timer?.disarm() }
    }

    private func expire() {
        for (number, launch) in launches where !launch.isSettled {
            guard let deadline = launch.deadline, deadline <= loop.now else { continue }
            journal.log(
                .notice, "launch \(number) of \(launch.id) is cancelled: Proceed was not called in time")
            launch.cancel()
        }
        arm()
    }
}
