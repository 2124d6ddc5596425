import AppStateBus
import AppStateContract
import LifeCycle
import Systemd

/// The lines in the journal, and the fields to search by: each line about an application has its kind and its
/// own fields. Edges would add a line for each change of the focus, so they are logged on request only
/// (SYSTEMD_LOG_LEVEL=debug).
extension Journal {
    /// A line about one application: `application N (id): what`.
    func log(
        _ priority: Priority, _ what: @autoclosure () -> String, about application: Registered,
        as message: JournalMessage, _ fields: @autoclosure () -> [(JournalField, String)] = []
    ) {
        // There is an edge for each change of the focus, and its line is seldom needed.
        guard logs(priority) else { return }
        // journald adds the unit, session and command line of this process. By now its number may belong to another
        // process.
        let object = message.isOfTheEnd ? [] : [("OBJECT_PID", String(application.pid))]
        log(
            priority, "application \(application.number) (\(application.id)): \(what())", as: message,
            application.fields + fields(), object)
    }

    /// A line that has a kind.
    func log(
        _ priority: Priority, _ text: String, as message: JournalMessage, _ fields: [(JournalField, String)],
        _ others: [(String, String)] = []
    ) {
        log(
            priority, text,
            [("MESSAGE_ID", message.rawValue)] + fields.map { ($0.0.rawValue, $0.1) } + others)
    }

    /// A line about an operation that failed.
    func log(_ priority: Priority, failure: String, of application: Registered) {
        log(priority, failure, about: application, as: .stepFailed, [(.reason, failure)])
    }

    /// Does something that can fail and is not essential. If it fails, logs `what` and the reason.
    func attempt(_ priority: Priority, _ what: @autoclosure () -> String, _ body: () throws -> Void) {
        do { try body() } catch { log(priority, "\(what()): \(error)") }
    }

    /// A line about a report of the life cycle about an application.
    func log(_ notice: Notice, about application: Registered) {
        let (priority, message): (Priority, JournalMessage) =
            switch notice {
            case .wouldSuspend: (.notice, .wouldSuspend)
            case .contested: (.notice, .holdsGivenUp)
            case .objection: (.info, .notSuspended)
            case .needed: (.info, .needed)
            case .unresponsive, .wouldTerminate: (.notice, .unresponsive)
            case .wouldReclaim: (.notice, .wouldReclaim)
            case .losesUnsaved: (.warning, .losesUnsaved)
            case .reclaimStuck: (.warning, .notReclaimed)
            case .spared, .reclaimLimit: (.notice, .notReclaimed)
            case .notRelaunched: (.notice, .notRelaunched)
            }
        var fields: [(JournalField, String)] = [(.reason, notice.description)]
        switch notice {
        case .objection(let why), .needed(let why), .spared(let why): fields = [(.reason, why)]
        case .unresponsive(let event), .wouldTerminate(let event): fields = [(.reason, event.rawValue)]
        case .wouldReclaim(let bytes): fields.append((.bytes, String(bytes)))
        case .reclaimStuck(let span): fields.append((.microseconds, String(span)))
        case .notRelaunched(let why): fields = [(.reason, why.description)]
        case .wouldSuspend, .contested, .losesUnsaved, .reclaimLimit: break
        }
        log(priority, notice.description, about: application, as: message, fields)
    }
}

extension ExitReason {
    /// An end that was not requested deserves more attention.
    var priority: Journal.Priority {
        switch self {
        case .crashed, .outOfMemory, .reclaimed, .unresponsive: .notice
        // Any client may register and unregister as often as it likes.
        case .unregistered: .debug
        case .exited, .killed, .terminated, .forceQuit, .rebooted, .unknown: .info
        }
    }
}

extension JournalMessage {
    /// The process may no longer exist.
    fileprivate var isOfTheEnd: Bool { self == .applicationRemoved || self == .reclaimed }
}

extension Registered {
    /// The fields that say which application a line is about.
    fileprivate var fields: [(JournalField, String)] {
        let known: [(JournalField, String)] = [
            (.application, number.description), (.applicationID, id.rawValue), (.pid, String(pid)),
            (.user, String(user)),
        ]
        return known + [(.session, session), (.unit, unit)].filter { !$0.1.isEmpty }
    }
}

extension BusPeer {
    /// A peer that writes to the journal when the bus does not report on it.
    convenience init(_ name: String, bus: Bus, journal: Journal) {
        self.init(name, bus: bus) { journal.log(.error, "cannot watch \(name) on the bus: \($0)") }
    }
}
