import AppStateBus
import AppStateContract
import Desktop
import Glibc
import Linux
import Systemd

/// Starts applications by their desktop entries and knows how they ended. Each process waits at a gate until the daemon
/// has registered it.
final class Launcher {
    private let tools: LaunchTools
    private var launches: [UInt64: Launch] = [:]
    private var lastNumber: UInt64 = 0

    /// The maximum number of launches that are remembered although their processes have ended.
    private static let mostEnded = 64

    /// - Parameters:
    ///   - session: the session bus.
    ///   - user: the user's bus, on which the service manager is; usually the same bus.
    init(loop: EventLoop, journal: Journal, session: SessionBus, user: SessionBus) {
        // If our program was replaced, the file that has taken its place.
        let executable = (try? Proc().formerExecutable(of: getpid())) ?? "/proc/self/exe"
        tools = LaunchTools(
            starter: ProgramStarter(loop: loop, bus: try? user.connection(), executable: executable),
            notices: StartupNotices(loop: loop, journal: journal), session: session, loop: loop,
            journal: journal)
    }

    /// Launches that have a window are no longer announced.
    ///
    /// - Parameter hasWindow: whether the application with this main process has one.
    func endNotices(where hasWindow: (Int32) -> Bool) {
        for launch in launches.values { launch.endNotice(where: hasWindow) }
    }

    /// Starts a desktop entry.
    ///
    /// - Parameters:
    ///   - isGated: the process waits for `Launch.proceed`. Otherwise it is started for an application that runs already
    ///     and must open URLs.
    ///   - answered: called once.
    func start(
        _ id: String, _ request: LaunchRequest, isGated: Bool,
        _ answered: @escaping (Result<Launch, MethodError>) -> Void
    ) {
        let ended = launches.filter { $0.value.program?.hasExited == true }.keys.sorted()
        for number in ended.dropLast(Self.mostEnded) { launches[number] = nil }
        lastNumber += 1
        let number = lastNumber
        let launch = Launch(number, id, request, isGated: isGated, tools: tools) { [unowned self] error in
            if let error {
                launches[number] = nil
                answered(.failure(error))
            } else if let launch = launches[number] {
                answered(.success(launch))
            }
        }
        launches[number] = launch
        launch.begin()
    }

    /// The launch of this number, if it is remembered.
    func launch(_ number: UInt64) throws(MethodError) -> Launch {
        guard let launch = launches[number] else {
            throw MethodError(ErrorName.noSuchProcess.rawValue, "there is no launch \(number)")
        }
        return launch
    }

    /// Cancels all launches that wait.
    func cancelAll() { for launch in launches.values { launch.cancel() } }
}
