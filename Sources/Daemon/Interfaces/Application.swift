import AppStateBus
import AppStateContract
import LifeCycle
import Linux

/// org.appstate1.Application: one object for each registered application.
extension Daemon {
    func applicationInterface() -> Interface {
        Interface(
            BusNames.application, methods: delegateMethods() + managingMethods() + laterMethods(),
            properties: applicationProperties(), signals: applicationSignals())
    }

    /// For the application's own processes only.
    private func delegateMethods() -> [Method] {
        [
            Method("FinishLaunching") { [unowned self] call in
                let (application, connection) = try ownApplication(call)
                try perform(.finishLaunching(application.number, by: connection.name))
                try call.reply()
            },
            Method("BecomeDelegate") { [unowned self] call in
                let (application, connection) = try ownApplication(call)
                try perform(.becomeDelegate(application.number, connection.name))
                try call.reply()
            },
            Method("Acknowledge", in: [("serial", "t")]) { [unowned self] call in
                let serial = try call.message.readUInt64()
                let (application, connection) = try ownApplication(call)
                try perform(.acknowledge(application.number, serial: serial, by: connection.name))
                try call.reply()
            },
            Method("BeginBackgroundTask", in: [("name", "s")], out: [("task", "t")]) { [unowned self] call in
                let name = try call.message.readString()
                let (application, connection) = try ownApplication(call)
                let limit = machine.settings.limits.stringBytes
                guard name.utf8.count <= limit else {
                    throw MethodError(.limitsExceeded, "The name is longer than \(limit) bytes")
                }
                var task: UInt64 = 0
                try perform(.beginBackgroundTask(application.number, name: name, by: connection.name)) {
                    answer in
                    if case .task(let id) = answer { task = id }
                }
                try call.reply { message throws(BusFailure) in try message.append(task) }
            },
            Method("EndBackgroundTask", in: [("task", "t")]) { [unowned self] call in
                let task = try call.message.readUInt64()
                let (application, _) = try ownApplication(call)
                try perform(.endBackgroundTask(application.number, task: task))
                try call.reply()
            },
            Method("BackgroundTimeRemaining", out: [("usec", "t")]) { [unowned self] call in
                let (application, _) = try ownApplication(call)
                let remaining = application.backgroundTimeRemaining(at: Clock.monotonicMicroseconds)
                try call.reply { message throws(BusFailure) in try message.append(remaining) }
            },
        ]
    }

    /// For the application's user, root, and who manages it with polkit's consent.
    private func managingMethods() -> [Method] {
        [
            Method("Suspend") { [unowned self] call in
                let (application, connection) = try managedApplication(call)
                try checkRoomToWait(for: application.number)
                try perform(.suspend(application.number, holder: connection.holder))
                stops.hurry(application.number)
                answer(call.deferred(), whenAtRest: application.number, wantsHold: true)
            },
            Method("Resume") { [unowned self] call in
                let (application, connection) = try managedApplication(call)
                try checkRoomToWait(for: application.number)
                try perform(.resume(application.number, holder: connection.holder))
                answer(call.deferred(), whenAtRest: application.number, wantsHold: false)
            },
            Method("CanSuspend", out: [("objections", "as")]) { [unowned self] call in
                let (application, connection) = try managedApplication(call)
                answer(call.deferred(), lookingAt: application, for: connection) {
                    try $0.append(strings: $2)
                }
            },
            Method("Terminate", in: [("force", "b")]) { [unowned self] call in
                let force = try call.message.readBool()
                let (application, _) = try managedApplication(call)
                if let stranger = strangersRights(of: application) {
                    throw MethodError(.accessDenied, stranger)
                }
                try perform(.terminate(application.number, force: force))
                try call.reply()
            },
            Method("Unregister") { [unowned self] call in
                let connection = try caller()
                let application = try visibleApplication(at: call.path, to: connection)
                // Its own processes may, in a sandbox too.
                if !connection.isSandboxed { _ = try managedApplication(call) }
                try perform(.unregister(application.number))
                try call.reply()
            },
            Method("Explain", out: [("explanation", "a{sv}")]) { [unowned self] call in
                let connection = try caller()
                let application = try visibleApplication(at: call.path, to: connection)
                answer(call.deferred(), lookingAt: application, for: connection) {
                    [unowned self] in
                    try $0.appendDictionary(explanation(of: $1, $2))
                }
            },
        ]
    }

    private func laterMethods() -> [Method] {
        [
            notSupported("SaveState", in: [("state", "ay")]),
            notSupported("LoadState", out: [("state", "ay")]),
            notSupported("SaveStateFile", in: [("state", "h")]),
            notSupported("LoadStateFile", out: [("state", "h")]),
            notSupported("Open", in: [("urls", "as"), ("options", "a{sv}")]),
            notSupported("SendMessage", in: [("name", "s"), ("payload", "a{sv}")]),
            notSupported("SetUserActivity", in: [("type", "s"), ("info", "a{sv}")]),
            notSupported("ContinueActivity", in: [("type", "s"), ("info", "a{sv}")]),
        ]
    }

    private func applicationSignals() -> [Signal] {
        [
            Signal("WillFinishLaunching", [("options", "a{sv}")]),
            Signal("DidFinishLaunching"),
            Signal("DidBecomeActive"),
            Signal("WillResignActive"),
            Signal("DidEnterBackground", [("serial", "t"), ("deadline", "t")]),
            Signal("WillEnterForeground"),
            Signal("WillTerminate", [("serial", "t"), ("deadline", "t")]),
            Signal("DidReceiveMemoryWarning", [("level", "s")]),
            Signal("SignificantTimeChange", [("cause", "s")]),
            Signal("ProtectedDataWillBecomeUnavailable", [("serial", "t"), ("deadline", "t")]),
            Signal("ProtectedDataDidBecomeAvailable"),
            Signal("OpenURLs", [("urls", "as"), ("options", "a{sv}")]),
            Signal("ContinueUserActivity", [("type", "s"), ("info", "a{sv}")]),
            Signal("MessageReceived", [("sender", "s"), ("name", "s"), ("payload", "a{sv}")]),
            Signal("BackgroundTransferFinished", [("id", "s"), ("result", "a{sv}")]),
            Signal("BackgroundTaskWillExpire", [("task", "t"), ("deadline", "t")]),
            Signal("StateChanged", [("from", "s"), ("to", "s"), ("reason", "s")]),
        ]
    }
}
