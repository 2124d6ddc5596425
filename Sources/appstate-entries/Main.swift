import AppStateContract
import CGIO
import Glibc

/// Reads desktop entries and default applications with GIO, for the session agent and appstatectl. They run this
/// program and read what it prints (`DesktopEntries`): GIO does not stay in their memory.
///
/// The output consists of records: the number of fields, and the fields, each with a NUL after it. If the exit status
/// is not 0, the only record is the name and the text of a D-Bus error.
///
/// - `list`: a record for each entry: id, `StartupWMClass`, program, whether menus show it, types of activities.
/// - `start ID [URL…]`: a record that describes the entry, and one for each command line: directory, file, arguments.
/// - `open URL…`: a record for each, with the id of its default application.
@main
enum Main {
    static func main() {
        // Nobody waits longer. Desktop entries may be on a file server.
        alarm(5)
        // Modules for other file systems would connect to the session bus.
        setenv("GIO_USE_VFS", "local", 1)
        var words = CommandLine.arguments.dropFirst()
        do throws(Failure) {
            switch words.popFirst() {
            case "list": for entry in Entry.all { say(entry.row) }
            case "start":
                guard let id = words.popFirst() else { throw usage }
                for record in try Entry(id: id).start(opening: Array(words)) { say(record) }
            case "open":
                // If one of them has no application, none is opened.
                for id in try words.map(Handler.id) { say([id]) }
            default: throw usage
            }
        } catch {
            say([error.name.rawValue, error.text])
            exit(1)
        }
    }

    private static let usage = Failure(
        .invalidArgs, "appstate-entries is only for use by appstate-session and appstatectl")

    private static func say(_ record: [String]) {
        print(([String(record.count)] + record).joined(separator: "\0"), terminator: "\0")
    }
}

/// Why an application cannot be started, or why nothing opens a URL: a D-Bus error.
struct Failure: Error {
    let name: ErrorName
    let text: String

    init(_ name: ErrorName, _ text: String) { (self.name, self.text) = (name, text) }
}
