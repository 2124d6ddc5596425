import AppStateBus
import AppStateContract
import LifeCycle
import Linux

private typealias Name = ApplicationMethod

/// org.appstate1.Application: one object for each registered application.
extension Daemon {
    func applicationInterface() -> Interface {
        Interface(
            BusNames.application,
            methods: delegateMethods() + taskMethods() + schedulingMethods() + stateMethods()
                + managingMethods() + sendingMethods() + windowMethods() + [inhibit()],
            properties: properties.application.properties,
            signals: ApplicationSignal.allCases.map { Signal($0.rawValue, $0.arguments) })
    }

    /// For the application's own processes only.
    private func delegateMethods() -> [Method] {
        [
            Method(Name.finishLaunching) { [unowned self] call in
                let (application, connection) = try access.ownApplication(call)
                try perform(.finishLaunching(application.number, by: connection.name))
                try call.reply()
            },
            Method(Name.becomeDelegate) { [unowned self] call in
                let (application, connection) = try access.ownApplication(call)
                try perform(.becomeDelegate(application.number, connection.name))
                try call.reply()
            },
            Method(Name.acknowledge, in: [("serial", "t")]) { [unowned self] call in
                let serial = try call.message.readUInt64()
                let (application, connection) = try access.ownApplication(call)
                try perform(.acknowledge(application.number, serial: serial, by: connection.name))
                try call.reply()
            },
            Method(Name.answerPings) { [unowned self] call in
                let (application, connection) = try access.ownApplication(call)
                try perform(.answerPings(application.number, by: connection.name))
                try call.reply()
            },
            Method(Name.finishTransfer, in: [("id", "s")]) { [unowned self] call in
                let id = try call.message.readString()
                let (application, _) = try access.ownApplication(call)
                try perform(.finishTransfer(application.number, id: id))
                try call.reply()
            },
            Method(Name.setUnsavedChanges, in: [("unsaved", "b")]) { [unowned self] call in
                let unsaved = try call.message.readBool()
                let (application, _) = try access.ownApplication(call)
                try perform(.setUnsavedChanges(application.number, unsaved))
                try call.reply()
            },
        ]
    }

    /// For the application's user, and root.
    private func managingMethods() -> [Method] {
        [
            Method(Name.configure, in: [("rule", "a{sv}")]) { [unowned self] call in
                let entries = try call.message.readDictionary()
                let (application, _) = try access.managedApplication(call)
                var rule = try Rule(entries, limit: core.machine.settings.limits.stringBytes)
                // It would start a program by an id that a process in a sandbox has chosen.
                if table[application.number]?.isKnownByID != true { rule?.relaunchReclaimed = nil }
                try perform(.configure(application.number, rule))
                try call.reply()
            },
            Method(Name.suspend) { [unowned self] call in
                let (application, connection) = try access.managedApplication(call)
                try perform(.suspend(application.number, holder: connection.holder))
                answer(call.deferred(), whenAtRest: application.number, wantsHold: true)
            },
            Method(Name.resume) { [unowned self] call in
                let (application, connection) = try access.managedApplication(call)
                try perform(.resume(application.number, holder: connection.holder))
                answer(call.deferred(), whenAtRest: application.number, wantsHold: false)
            },
            Method(Name.toggle, in: [("options", "a{sv}")], out: [("suspended", "b")]) {
                [unowned self] call in
                let entries = try call.message.readDictionary()
                let (application, connection) = try access.managedApplication(call)
                try toggle(application, try ToggleOptions(entries), by: connection, call)
            },
            Method(Name.listObjections, out: [("objections", "as")]) { [unowned self] call in
                let (application, _) = try access.managedApplication(call)
                answer(call.deferred(), lookingAt: application) {
                    try $0.append(strings: $2)
                }
            },
            Method(Name.terminate, in: [("force", "b")]) { [unowned self] call in
                let force = try call.message.readBool()
                let (application, _) = try access.managedApplication(call)
                if let rights = otherRights(of: application) {
                    throw MethodError(.accessDenied, rights)
                }
                try perform(.terminate(application.number, force: force))
                try call.reply()
            },
            Method(Name.unregister) { [unowned self] call in
                let connection = try access.caller()
                let application = try access.visibleApplication(at: call.path, to: connection)
                // The application's own processes may do this, even in a sandbox.
                if !connection.isSandboxed { _ = try access.managedApplication(call) }
                try perform(.unregister(application.number))
                try call.reply()
            },
            Method(Name.explain, out: [("explanation", "a{sv}")]) { [unowned self] call in
                let application = try access.visibleApplication(at: call.path, to: try access.caller())
                answer(call.deferred(), lookingAt: application) { [unowned self] in
                    try $0.appendDictionary(explanation(of: $1, $2))
                }
            },
        ]
    }
}
