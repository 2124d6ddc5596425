import AppStateBus
import AppStateContract
import LifeCycle

private typealias Name = ApplicationMethod

/// The windows of applications: what reporters say about them, and how one comes to the front.
extension Daemon {
    func windowMethods() -> [Method] {
        [
            Method(Name.activate, in: [("options", "a{sv}")]) { [unowned self] call in
                let options = try call.message.readDictionary()
                let (application, connection) = try access.managedApplication(call)
                var request = try LaunchRequest(toShowWith: options)
                request.source = access.application(of: connection)?.id
                let number = application.number
                guard agent(.presenter, of: application.user, in: application.session) != nil else {
                    throw Self.noAgent(application.session)
                }
                if let hold = application.holds.first(where: {
                    $0.reason == .request && $0.holder != connection.holder
                }) {
                    throw MethodError(
                        .failed, "Application \(number) stays suspended at the request of \(hold.holder)")
                }
                // The user wants to use it.
                try perform(.resume(number, holder: connection.holder))
                present(core.application(number) ?? application, request, answering(call))
            },
            Method(Name.listWindows, out: [("windows", "aa{sv}")]) { [unowned self] call in
                let (application, _) = try access.managedApplication(call)
                let windows = core.machine.shownWindows(of: application.number)
                try call.reply { message throws(BusFailure) in
                    try message.open(.array, "a{sv}")
                    for window in windows { try message.appendDictionary(window.entries) }
                    try message.close()
                }
            },
        ]
    }
}

extension ShownWindow {
    fileprivate var entries: [(String, Variant)] {
        let login = if case .login(let id) = session { id } else { "" }
        return [
            (ShownWindowKey.window.rawValue, .uint64(number)),
            (ShownWindowKey.state.rawValue, .string(state.rawValue)),
            (ShownWindowKey.title.rawValue, .string(title)),
            (ShownWindowKey.session.rawValue, .string(login)),
            (ShownWindowKey.minimized.rawValue, .bool(isMinimized)),
        ]
    }
}
