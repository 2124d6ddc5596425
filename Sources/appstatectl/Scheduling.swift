import AppStateBus
import AppStateContract
import ArgumentParser
import Glibc

struct Schedule: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "List the launches that applications have scheduled, or cancel some of your own.")

    @OptionGroup var bus: BusOptions
    @OptionGroup var output: OutputOptions
    @Flag(help: "Cancel them instead.") var cancel = false
    @Argument(
        help: "Only those of this application, by its id; it need not be running.",
        completion: .applicationIDs)
    var id: String?
    @Argument(help: "Only the one with this name.") var name: String?

    func validate() throws {
        if let id { try refuseNoID(id) }
        if cancel, id == nil { throw ValidationError("--cancel needs the id of an application.") }
        if cancel, output.json { throw ValidationError("--cancel prints nothing.") }
    }

    func run() throws {
        let client = try bus.connect()
        let rows = try client.scheduledLaunches().filter {
            (id == nil || $0.id == id) && (name == nil || $0.name == name)
        }
        if cancel { return try cancel(rows.filter { $0.uid == getuid() }, client) }
        output.show(
            rows, asJSON: \.json,
            in: Table(["APPLICATION", "NAME", "USER", "LAUNCHED"], givingWay: [(1, 4), (0, 8), (3, 8)]),
            cells: {
                [
                    Line($0.id), Line($0.name.isEmpty ? "–" : $0.name), Line(userName($0.uid)),
                    Line($0.moment),
                ]
            }, ifNone: "No launches are scheduled\(id.map { " by \($0)" } ?? "").")
    }

    private func cancel(_ rows: [Client.ScheduledLaunch], _ client: Client) throws {
        guard let first = rows.first else {
            throw Failure(
                "you have no scheduled launch\(name.map { " \"\($0)\"" } ?? "") of \(id ?? "")",
                .noSuchApplication)
        }
        for row in rows {
            try client.call(ManagerMethod.cancelLaunch) {
                try $0.append(first.id)
                try $0.append(row.name)
            }
        }
    }
}

struct Tasks: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "List the background tasks of applications and their progress, or cancel one.")

    @OptionGroup var bus: BusOptions
    @OptionGroup var output: OutputOptions
    @Flag(help: "Cancel the task instead.") var cancel = false
    @Argument(help: "Only the tasks of this application.", completion: .applications) var app: String?
    @Argument(help: "Only this task, by its number.") var task: UInt64?

    func validate() throws {
        if cancel, task == nil {
            throw ValidationError("--cancel needs an application and the number of a task.")
        }
        if cancel, output.json { throw ValidationError("--cancel prints nothing.") }
    }

    func run() throws {
        let client = try bus.connect()
        let path = try app.map { try client.path(of: $0) }
        if cancel, let path, let task {
            try client.call(ApplicationMethod.cancelTask, at: path) { try $0.append(task) }
            return
        }
        let all = try client.applications().filter { path == nil || $0.path == path }
        if let app, all.isEmpty { throw Failure("no application \"\(app)\"", .noSuchApplication) }
        let rows = try all.flatMap { try client.tasks(of: $0) }.filter { task == nil || $0.number == task }
        if let app, let task, rows.isEmpty {
            throw Failure("\(app) has no background task \(task)", .refused)
        }
        let table = Table(
            ["APPLICATION", "TASK", "NAME", "PROGRESS", "ENDS"], givingWay: [(2, 4), (3, 8), (0, 8)])
        output.show(
            rows, asJSON: \.json, in: table,
            cells: {
                [
                    Line($0.application.id), Line(String($0.number)), Line($0.name), Line($0.progressText),
                    Line($0.deadline == .never ? "–" : "in \(duration(until: $0.deadline))"),
                ]
            }, ifNone: "No background tasks run.")
    }
}

extension Client {
    /// An entry of `ListScheduledLaunches`.
    struct ScheduledLaunch {
        let id: String
        let uid: UInt32
        let name: String
        let type: String
        /// CLOCK_REALTIME, microseconds; nil: it waits for something else.
        let at: UInt64?
        /// It waits for its user to log in.
        let isDue: Bool

        init?(_ entries: [String: Variant]) {
            guard case .string(let id)? = entries["app-id"], case .uint32(let uid)? = entries["uid"],
                case .string(let name)? = entries["name"], case .string(let type)? = entries["type"],
                case .bool(let isDue)? = entries["due"]
            else { return nil }
            (self.id, self.uid, self.name, self.type, self.isDue) = (id, uid, name, type, isDue)
            if case .uint64(let at)? = entries["at"] { self.at = at } else { at = nil }
        }

        /// When it is launched, for users.
        var moment: String {
            if isDue { return "at login" }
            return switch (LaunchTrigger(rawValue: type), at) {
            case (.time?, let at?): localTime(at)
            case (.network?, _): "with the network"
            case (.power?, _): "on mains power"
            default: type
            }
        }

        var json: JSON {
            .object(
                [
                    ("app_id", .string(id)), ("uid", .unsigned(UInt64(uid))), ("name", .string(name)),
                    ("type", .string(type)), ("due", .bool(isDue)),
                ] + (at.map { [("at", .unsigned($0))] } ?? []))
        }
    }

    func scheduledLaunches() throws -> [ScheduledLaunch] {
        try call(ManagerMethod.listScheduledLaunches).readDictionaries().compactMap(ScheduledLaunch.init)
    }

    /// A running background task.
    struct Task {
        let application: Row
        let number: UInt64
        let name: String
        /// CLOCK_MONOTONIC, microseconds; `never`: it has none now.
        let deadline: UInt64
        /// What is done, what there is to do, and the title; nil: it does not tell.
        var progress: (completed: UInt64, total: UInt64, title: String)?

        var progressText: String {
            guard let (completed, total, title) = progress else { return "–" }
            let percent = total == 0 ? 0 : Int(Double(completed) / Double(total) * 100)
            return "\(percent) % (\(completed) of \(total))\(title.isEmpty ? "" : " \(title)")"
        }

        var json: JSON {
            var members: [(String, JSON)] = [
                ("path", .string(application.path)), ("app_id", .string(application.id)),
                ("task", .unsigned(number)), ("name", .string(name)), ("deadline", .unsigned(deadline)),
            ]
            if let (completed, total, title) = progress {
                members += [
                    ("completed", .unsigned(completed)), ("total", .unsigned(total)),
                    ("title", .string(title)),
                ]
            }
            return .object(members)
        }
    }

    func tasks(of application: Row) throws -> [Task] {
        let properties: [String: Variant]
        do {
            properties = try self.properties(of: application.path)
        } catch let failure as Failure where failure.verdict == .noSuchApplication {
            // It has just ended.
            return []
        }
        guard case .array(_, let rows)? = properties[ApplicationProperty.backgroundTasks.rawValue] else {
            return []
        }
        var tasks: [Task] = []
        for case .structure(let values) in rows {
            guard values.count == 3, case .uint64(let number) = values[0], case .string(let name) = values[1],
                case .uint64(let deadline) = values[2]
            else { continue }
            tasks.append(Task(application: application, number: number, name: name, deadline: deadline))
        }
        if case .array(_, let continued)? = properties[ApplicationProperty.continuedTasks.rawValue] {
            for case .dictionary(let entries) in continued {
                guard case .uint64(let number)? = entries["task"],
                    let index = tasks.firstIndex(where: { $0.number == number }),
                    case .uint64(let completed)? = entries["completed"],
                    case .uint64(let total)? = entries["total"], case .string(let title)? = entries["title"]
                else { continue }
                tasks[index].progress = (completed, total, title)
            }
        }
        return tasks
    }
}

extension Message {
    /// Reads `aa{sv}`.
    borrowing func readDictionaries() throws -> [[String: Variant]] {
        var all: [[String: Variant]] = []
        try withEntered(.array, "a{sv}") {
            while !atEnd {
                all.append(Dictionary(try readDictionary().map { ($0.key, $0.value) }) { $1 })
            }
        }
        return all
    }
}
