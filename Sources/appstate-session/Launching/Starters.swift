import AppStateBus
import Desktop
import Glibc
import Linux
import Systemd

/// Chooses what starts programs: it uses the user's bus if there is one, because the service manager is there.
final class Starters {
    private let loop: EventLoop
    private let user: SessionBus
    private let executable: String
    private var last: (starter: ProgramStarter, bus: Bus?)?
    /// Starters of lost connections. They still know the processes that they have started.
    private var former: [ProgramStarter] = []

    private static let mostFormer = 8

    /// - Parameter user: the user's bus.
    init(loop: EventLoop, user: SessionBus) {
        self.loop = loop
        self.user = user
        // If our program was replaced, the file that has taken its place.
        executable = (try? Proc().formerExecutable(of: getpid())) ?? "/proc/self/exe"
    }

    /// The starter for new programs.
    var current: ProgramStarter {
        let bus = try? user.connection()
        if let last, last.bus === bus { return last.starter }
        if let last { former = [last.starter] + former.prefix(Self.mostFormer - 1) }
        let starter = ProgramStarter(loop: loop, bus: bus, executable: executable)
        last = (starter, bus)
        return starter
    }
}
