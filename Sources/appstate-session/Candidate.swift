import AppStateContract
import Glibc
import Linux
import SessionRules

/// The application to which a window belongs: its main process, and the id to register it with.
struct Candidate: Equatable {
    let process: ProcessIdentity
    let id: ApplicationID
    /// The processes from the window's process to the application's main process. If that has no unit, its ancestors
    /// follow, because the application may be part of another: up to the first that is not the same application.
    let lineage: [ProcessIdentity]
    /// The traits by which rules can match the application.
    let traits: Traits

    /// Nil: the process belongs to the desktop or to another user, or nothing identifies the application.
    ///
    /// The main process is the topmost process of the application's unit among the window's process, its parent and so
    /// on, as far as these are the same application. Without a unit it is the window's process. A terminal and its shell
    /// are not the same application as the program that runs in them.
    ///
    /// - Parameters:
    ///   - process: the process of the window.
    ///   - appID: the application id of the window.
    ///   - entry: finds the id of the desktop entry for a window's class and a program, if no unit identifies the
    ///     application.
    ///   - isApart: whether an ancestor is not the application that the window's process is by these traits, such as a
    ///     launcher above a game.
    init?(
        windowOf process: Int32, appID: String, on desktop: DesktopProcesses, proc: Proc = Proc(),
        entry: (_ appID: String, _ program: String?) -> String? = { _, _ in nil },
        isApart: (_ traits: Traits, _ ancestor: Int32) -> Bool = { _, _ in false }
    ) {
        let line = proc.lineage(of: process)
        guard !line.isEmpty, let path = try? proc.unifiedCgroup(of: process) ?? "/",
            !path.split(separator: "/").contains(Self.sessionSlice)
        else { return nil }
        let unit = ApplicationUnit(inPath: path).flatMap { desktop.units.contains($0.path) ? nil : $0 }
        let members = line.prefix { member in
            guard let unit else { return false }
            return (try? proc.unifiedCgroup(of: member.pid)).flatMap { ApplicationUnit(inPath: $0) } == unit
        }
        func id(_ name: String?, _ main: Int32) -> ApplicationID? {
            let name =
                name ?? proc.flatpakApplication(of: process) ?? entry(appID, try? proc.program(of: main))
            return name.flatMap(ApplicationID.init) ?? Self.id(appID)
        }
        func traits(_ main: Int32, _ id: ApplicationID) -> Traits {
            var traits = Traits(of: main, id: id.rawValue, proc: proc)
            traits[.windowClass] = Set([appID, Self.id(appID)?.rawValue].compactMap(\.self))
            return traits
        }
        let own = id(nil, process).map { traits(process, $0) }
        let family = unit == nil ? line : Array(members)
        var below: Proc.Stat?
        let same = Array(
            family.prefix { member in
                if let own, member.pid != process, isApart(own, member.pid) { return false }
                guard let stat = try? proc.stat(member.pid) else { return false }
                defer { below = stat }
                // A terminal emulator has another terminal than what runs in it, or none. A shell makes a process group
                // of each job.
                guard let below, below.hasPseudoterminal else { return true }
                return stat.terminal == below.terminal && stat.group == below.group
            })
        guard let main = unit == nil ? line.first : same.last, !desktop.lineage.contains(main.pid),
            unit != nil || !desktop.isDialog(line, proc)
        else { return nil }
        for pid in [process, main.pid] {
            guard let owner = try? proc.status(pid).owner, owner.isWholly(getuid()) else { return nil }
        }
        let isNamed = same.count == family.count && unit?.isNamed(after: main.pid, proc: proc) == true
        let name = isNamed ? unit?.application : nil
        guard let id = id(name, main.pid) else { return nil }
        self.process = main
        self.id = id
        lineage = same
        self.traits = traits(main.pid, id)
    }

    /// The slice in which session managers put the parts of the desktop (systemd.special(7)).
    private static let sessionSlice: Substring = "session.slice"

    /// Characters that an id cannot contain become `_`: WM_CLASS may be any text.
    private static func id(_ appID: String) -> ApplicationID? {
        ApplicationID(
            String(appID.map { character in ApplicationID(String(character)) == nil ? "_" : character }))
    }
}

/// Processes that are never adopted: the desktop, this agent, and their ancestors. If an ancestor were an application,
/// the desktop or this agent would be part of it.
struct DesktopProcesses {
    /// The processes themselves, their parents and so on.
    let lineage: Set<Int32>
    /// Units of applications in which these processes are. Such a unit does not belong to a single application.
    let units: Set<String>
    private let processes: Set<Int32>

    /// The programs with which window managers ask their user something, such as whether to kill a program that does
    /// not answer: xfwm4, KWin, and metacity with its relatives. openbox shows errors with the last of these programs.
    private static let dialogs: Set<String> = ["helper-dialog", "kwin_killer_helper", "zenity", "xmessage"]

    /// - Parameter processes: the desktop's processes, as observers know them.
    init(_ processes: Set<Int32>, proc: Proc = Proc()) {
        let all = processes.union([getpid()])
        self.processes = processes
        lineage = all.reduce(into: all) { $0.formUnion(proc.lineage(of: $1).map(\.pid)) }
        units = Set(
            all.compactMap { pid in
                (try? proc.unifiedCgroup(of: pid)).flatMap { ApplicationUnit(inPath: $0) }?.path
            })
    }

    /// Whether the first process of a line is a dialog of the desktop.
    func isDialog(_ line: [ProcessIdentity], _ proc: Proc) -> Bool {
        guard line.count > 1, processes.contains(line[1].pid),
            let program = try? proc.program(of: line[0].pid)
        else { return false }
        return Self.dialogs.contains(program)
    }
}
