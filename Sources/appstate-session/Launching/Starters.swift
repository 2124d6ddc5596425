import AppStateBus
import Desktop
import Glibc
import Linux
import Systemd

/// Who starts programs: over the user's bus while there is one, for the service manager is there.
final class Starters {
    private let loop: EventLoop
    private let user: SessionBus
    private let executable: String
    private var last: (starter: ProgramStarter, bus: Bus?)?
    /// Those of connections that were lost: they still know of processes of theirs.
    private var former: [ProgramStarter] = []

    private static let mostFormer = 8

    /// - Parameter user: the user's bus.
    init(loop: EventLoop, user: SessionBus) {
        self.loop = loop
        self.user = user
        executable = OwnProgram.path
    }

    /// The one for what is started now.
    var current: ProgramStarter {
        let bus = try? user.connection()
        if let last, last.bus === bus { return last.starter }
        if let last { former = [last.starter] + former.prefix(Self.mostFormer - 1) }
        let starter = ProgramStarter(loop: loop, bus: bus, executable: executable)
        last = (starter, bus)
        return starter
    }
}
