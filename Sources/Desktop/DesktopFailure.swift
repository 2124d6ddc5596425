/// Why an application cannot be started, or why no application opens a file or URL.
public enum DesktopFailure: Error, Equatable, Sendable, CustomStringConvertible {
    /// No directory of applications has an entry with this id.
    case noEntry(id: String)
    /// The entry says `Hidden=true`: the desktop treats it as if it did not exist.
    case hidden(id: String, path: String)
    /// The file of the entry cannot be read.
    case unreadable(path: String, why: String)
    /// The entry's `Type` is not `Application`. Empty: it has none.
    case notApplication(id: String, type: String)
    /// The program that `TryExec` names is not installed.
    case tryExecMissing(id: String, program: String)
    /// The program that `Exec` names is not installed.
    case programMissing(id: String, program: String)
    /// The directory that `Path` names does not exist.
    case directoryMissing(id: String, directory: String)
    /// `Exec` is not a valid command line.
    case brokenExec(id: String, exec: String, why: String)
    /// `Exec` has a field code that the specification does not define. Empty: a percent sign at the end of `Exec`.
    case unknownFieldCode(id: String, exec: String, code: String)
    /// The entry has no `Exec`.
    case nothingToStart(id: String)
    /// The entry needs a terminal, and no terminal emulator is installed.
    case noTerminal(id: String)
    /// The program takes only files of this machine.
    case remoteURL(id: String, url: String)
    /// `Exec` has no field code for files or URLs. Only a file's path may be added at its end.
    case takesNoURL(id: String, exec: String, url: String)
    /// The text is neither a URL nor an absolute path.
    case notURL(String)
    /// The file does not exist.
    case noFile(path: String)
    /// No installed application opens this type.
    case noHandler(what: String, type: String)
    /// The system did not start the application.
    case notStarted(id: String, why: String)

    /// One sentence that contains the values.
    public var description: String {
        switch self {
        case .noEntry(let id): "there is no desktop entry \(id)"
        case .hidden(let id, let path): "the desktop entry \(id) is hidden by \(path)"
        case .unreadable(let path, let why): "the desktop entry \(path) cannot be read: \(why)"
        case .notApplication(let id, ""): "the desktop entry \(id) has no Type"
        case .notApplication(let id, let type): "the desktop entry \(id) is a \(type), not an Application"
        case .tryExecMissing(let id, let program):
            "TryExec of \(id) names the program \(program), which is not installed"
        case .programMissing(let id, let program):
            "Exec of \(id) names the program \(program), which is not installed"
        case .directoryMissing(let id, let directory):
            "Path of \(id) names the directory \(directory), which does not exist"
        case .brokenExec(let id, let exec, let why): "Exec of \(id) is not a command line: \(why): \(exec)"
        case .unknownFieldCode(let id, let exec, let code):
            "Exec of \(id) has an unknown field code %\(code): \(exec)"
        case .nothingToStart(let id): "the desktop entry \(id) has no Exec: there is nothing to start"
        case .noTerminal(let id): "\(id) runs in a terminal, and no terminal emulator is installed"
        case .remoteURL(let id, let url): "\(id) opens files of this machine only, not \(url)"
        case .takesNoURL(let id, let exec, let url):
            "Exec of \(id) has no %u or %U for a URL such as \(url): \(exec)"
        case .notURL(let text): "\(text) is neither a URL nor an absolute path"
        case .noFile(let path): "there is no file \(path)"
        case .noHandler(let what, let type):
            "no application is known to open \(what) (\(type)); update-desktop-database(1) registers new ones"
        case .notStarted(let id, let why): "\(id) was not started: \(why)"
        }
    }
}
