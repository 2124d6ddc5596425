import AppStateContract
import Glibc
import Linux
import SessionRules

/// The application to which a window belongs: its main process, and the id to register it with.
struct Candidate: Equatable {
    let process: ProcessIdentity
    let id: ApplicationID
    /// The processes from the window's process to the application's main process. If that has no unit of its own, its
    /// ancestors follow, because the application may be part of another.
    let lineage: [ProcessIdentity]
    /// The traits by which rules can match the application.
    let traits: Traits

    /// Nil: the process belongs to the desktop or to another user, or nothing identifies the application.
    ///
    /// The main process is the topmost process of the application's unit among the window's process, its parent and so
    /// on. Without a unit it is the window's process.
    ///
    /// - Parameters:
    ///   - process: the process of the window.
    ///   - appID: the application id of the window.
    ///   - entry: finds the id of the desktop entry for a window's class and a program, if no unit identifies the
    ///     application.
    init?(
        windowOf process: Int32, appID: String, on desktop: DesktopProcesses, proc: Proc = Proc(),
        entry: (_ appID: String, _ program: String?) -> String? = { _, _ in nil }
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
        guard let main = members.last ?? line.first, !desktop.lineage.contains(main.pid),
            unit != nil || !desktop.isDialog(line, proc)
        else { return nil }
        for pid in [process, main.pid] {
            guard let owner = try? proc.status(pid).owner, owner.isWholly(getuid()) else { return nil }
        }
        let name =
            unit?.application ?? proc.flatpakApplication(of: process)
            ?? entry(appID, try? proc.program(of: main.pid))
        guard let id = name.flatMap(ApplicationID.init) ?? Self.id(appID) else {
            return nil
        }
        self.process = main
        self.id = id
        lineage = unit == nil ? line : Array(members)
        var traits = Traits(of: main.pid, id: id.rawValue, proc: proc)
        traits[.windowClass] = Set([appID, Self.id(appID)?.rawValue].compactMap(\.self))
        self.traits = traits
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
