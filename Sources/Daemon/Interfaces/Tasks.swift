import AppStateBus
import AppStateContract
import LifeCycle
import Linux

private typealias Name = ApplicationMethod

/// Background tasks: decode, ask, reply.
extension Daemon {
    func taskMethods() -> [Method] {
        [
            Method(Name.beginBackgroundTask, in: [("name", "s")], out: [("task", "t")]) {
                [unowned self] call in
                let name = try call.message.readString()
                let (application, connection) = try access.ownApplication(call)
                try checkName(name, "The name")
                try answer(
                    call, begin: .beginBackgroundTask(application.number, name: name, by: connection.name))
            },
            Method(Name.beginContinuedTask, in: [("name", "s"), ("options", "a{sv}")], out: [("task", "t")]) {
                [unowned self] call in
                let name = try call.message.readString()
                let options = try call.message.readDictionary()
                let (application, connection) = try access.ownApplication(call)
                try checkName(name, "The name")
                let given = try ContinuedTaskOptions(options, limit: core.machine.settings.limits.stringBytes)
                try answer(
                    call,
                    begin: .beginContinuedTask(
                        application.number, name: name, title: given.title, total: given.total,
                        by: connection.name))
            },
            Method(Name.setTaskProgress, in: [("task", "t"), ("completed", "t")]) { [unowned self] call in
                let task = try call.message.readUInt64()
                let completed = try call.message.readUInt64()
                let (application, _) = try access.ownApplication(call)
                try perform(.setTaskProgress(application.number, task: task, completed: completed))
                try call.reply()
            },
            Method(Name.endBackgroundTask, in: [("task", "t")]) { [unowned self] call in
                let task = try call.message.readUInt64()
                let (application, _) = try access.ownApplication(call)
                try perform(.endBackgroundTask(application.number, task: task))
                try call.reply()
            },
            Method(Name.cancelTask, in: [("task", "t")]) { [unowned self] call in
                let task = try call.message.readUInt64()
                let (application, _) = try access.managedApplication(call)
                try perform(.cancelTask(application.number, task: task))
                try call.reply()
            },
            Method(Name.backgroundTimeRemaining, out: [("usec", "t")]) { [unowned self] call in
                let (application, _) = try access.ownApplication(call)
                let now = Clock.monotonicMicroseconds
                let remaining = core.machine.backgroundTimeRemaining(of: application, at: now)
                try call.reply { message throws(BusFailure) in try message.append(remaining) }
            },
        ]
    }

    func checkName(_ name: String, _ what: String) throws(MethodError) {
        let limit = core.machine.settings.limits.stringBytes
        guard name.utf8.count <= limit else {
            throw MethodError(.limitsExceeded, "\(what) is longer than \(limit) bytes")
        }
    }

    private func answer(_ call: borrowing Call, begin request: Request) throws {
        var task: UInt64 = 0
        try perform(request) { answer in
            if case .task(let id) = answer { task = id }
        }
        try call.reply { message throws(BusFailure) in try message.append(task) }
    }
}

/// The options of `BeginContinuedTask`, each checked.
private struct ContinuedTaskOptions {
    var title = ""
    var total: UInt64 = 0

    init(_ entries: [(key: String, value: Variant)], limit: Int) throws(MethodError) {
        var seen: Set<ContinuedTaskKey> = []
        for (key, value) in entries {
            guard let option = ContinuedTaskKey(rawValue: key) else {
                throw MethodError(.invalidArgs, "BeginContinuedTask has no option \"\(key.shortened)\"")
            }
            guard seen.insert(option).inserted else {
                throw MethodError(.invalidArgs, "The option \"\(key)\" is given twice")
            }
            switch option {
            case .title: title = try value.string(key, limit: limit)
            case .total: total = try value.uint64(key)
            }
        }
        guard total > 0 else {
            throw MethodError(.invalidArgs, "BeginContinuedTask needs a total above 0")
        }
    }
}

extension Message {
    /// `aa{sv}`: the tasks that tell their progress.
    borrowing func append(continuedTasksOf application: Application) throws(BusFailure) {
        try open(.array, "a{sv}")
        for task in application.tasks {
            guard let progress = task.progress else { continue }
            try appendDictionary([
                ("completed", .uint64(progress.completed)), ("task", .uint64(task.id)),
                ("title", .string(progress.title)), ("total", .uint64(progress.total)),
            ])
        }
        try close()
    }
}
