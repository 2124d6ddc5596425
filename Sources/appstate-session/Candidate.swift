import AppStateContract
import Glibc
import Linux
import SessionRules

/// Whom a window makes an application: its application's main process, and under which id.
struct Candidate: Equatable {
    let process: ProcessIdentity
    let id: ApplicationID
    /// From the window's process to the application's main process; further up where that has no unit of its own, so that
    /// the application may be part of another.
    let lineage: [ProcessIdentity]
    /// What rules may know it by.
    let traits: Traits

    /// Nil: it is the desktop's, or another user's, or nobody says what it is.
    ///
    /// The main process is the topmost of the window's process, its parent and so on in the unit of the application;
    /// without a unit it is the window's process.
    ///
    /// - Parameters:
    ///   - process: the window's.
    ///   - appID: as the window has it.
    ///   - entry: finds the desktop entry's id of a window's class and a program, where no unit says what it is.
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

    /// Where session managers put what makes up the desktop (systemd.special(7)).
    private static let sessionSlice: Substring = "session.slice"

    /// What an id cannot hold becomes `_`: WM_CLASS may be any text.
    private static func id(_ appID: String) -> ApplicationID? {
        ApplicationID(
            String(appID.map { character in ApplicationID(String(character)) == nil ? "_" : character }))
    }
}

/// What is never adopted: the desktop, ourselves, and whatever these descend from, of which they would be part.
struct DesktopProcesses {
    /// They, their parents and so on.
    let lineage: Set<Int32>
    /// Applications' units that they are in, which are none of an application's own then.
    let units: Set<String>
    private let processes: Set<Int32>

    /// The programs by which window managers ask their user something, such as whether to kill what does not answer: xfwm4,
    /// KWin, and metacity with its relatives; openbox shows errors by the last.
    private static let dialogs: Set<String> = ["helper-dialog", "kwin_killer_helper", "zenity", "xmessage"]

    /// - Parameter processes: the desktop's, as observers know them.
    init(_ processes: Set<Int32>, proc: Proc = Proc()) {
        let all = processes.union([getpid()])
        self.processes = processes
        lineage = all.reduce(into: all) { $0.formUnion(proc.lineage(of: $1).map(\.pid)) }
        units = Set(
            all.compactMap { pid in
                (try? proc.unifiedCgroup(of: pid)).flatMap { ApplicationUnit(inPath: $0) }?.path
            })
    }

    /// Whether the first of a line is a dialog of the desktop's own.
    func isDialog(_ line: [ProcessIdentity], _ proc: Proc) -> Bool {
        guard line.count > 1, processes.contains(line[1].pid),
            let program = try? proc.program(of: line[0].pid)
        else { return false }
        return Self.dialogs.contains(program)
    }
}
