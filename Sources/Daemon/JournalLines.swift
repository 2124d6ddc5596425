import AppStateContract
import LifeCycle
import Systemd

/// What a machine's journal keeps, and how it can be searched: each line of an application has its kind and fields of
/// its own. Every edge would be a line for each change of the focus, and is for who asks for it (SYSTEMD_LOG_LEVEL=debug).
extension Journal {
    /// A line about one application: `application N (id): what`.
    func log(
        _ priority: Priority, _ what: @autoclosure () -> String, about application: Registered,
        as message: JournalMessage, _ fields: @autoclosure () -> [(JournalField, String)] = []
    ) {
        // An edge is one for each change of the focus, and seldom wanted.
        guard logs(priority) else { return }
        // journald adds unit, session and command line of this process; but its number may be another's by now.
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

    /// The system refused a step.
    func log(_ priority: Priority, failure: String, of application: Registered) {
        log(priority, failure, about: application, as: .stepFailed, [(.reason, failure)])
    }

    /// Does what can fail and be done without: then `what` is said, and why.
    func attempt(_ priority: Priority, _ what: @autoclosure () -> String, _ body: () throws -> Void) {
        do { try body() } catch { log(priority, "\(what()): \(error)") }
    }

    /// What the life cycle has to say of an application.
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
        case .wouldSuspend, .contested, .losesUnsaved, .reclaimLimit, .notRelaunched: break
        }
        log(priority, notice.description, about: application, as: message, fields)
    }
}

extension ExitReason {
    /// An end that nobody asked for is worth more attention.
    var priority: Journal.Priority {
        switch self {
        case .crashed, .outOfMemory, .reclaimed, .unresponsive: .notice
        // Whoever likes registers and unregisters as often as they like.
        case .unregistered: .debug
        case .exited, .killed, .terminated, .forceQuit, .rebooted, .unknown: .info
        }
    }
}

extension JournalMessage {
    /// The process may be no more.
    fileprivate var isOfTheEnd: Bool { self == .applicationRemoved || self == .reclaimed }
}

extension Registered {
    /// Which application a line is about.
    fileprivate var fields: [(JournalField, String)] {
        let known: [(JournalField, String)] = [
            (.application, number.description), (.applicationID, id.rawValue), (.pid, String(pid)),
            (.user, String(user)),
        ]
        return known + [(.session, session), (.unit, unit)].filter { !$0.1.isEmpty }
    }
}
