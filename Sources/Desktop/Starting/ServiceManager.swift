import AppStateBus
import Glibc

/// The user's service manager on the user's bus: org.freedesktop.systemd1(5).
enum ServiceManager {
    /// Why it has not made a unit.
    enum Failure: Error {
        /// There is no service manager on the bus.
        case noManager
        /// The service manager refuses the unit.
        case refused(String)

        init(_ error: MethodError) {
            self = ServiceManager.absences.contains(error.name) ? .noManager : .refused("\(error)")
        }
    }

    static let name = "org.freedesktop.systemd1"
    static let path = "/org/freedesktop/systemd1"
    static let interface = "org.freedesktop.systemd1.Manager"
    static let properties = "org.freedesktop.DBus.Properties"

    /// The error for a name of which there is a unit already.
    static let unitExists = "org.freedesktop.systemd1.UnitExists"

    /// How many names are tried, because an earlier agent may have left units.
    static let attempts: UInt64 = 1_000

    /// The errors of a bus without a service manager.
    private static let absences: Set<String> = [
        "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner",
        "org.freedesktop.DBus.Error.Disconnected",
    ]

    /// Whether the user has a service manager, on the bus or not. The check looks for the service manager's own socket.
    ///
    /// - Parameter directory: the user's runtime directory; nil: there is none.
    static func isRunning(in directory: String?) -> Bool {
        directory.map { access("\($0)/systemd/private", F_OK) == 0 } ?? false
    }

    /// A call of the manager itself, to fill in.
    static func call(_ member: String, _ bus: Bus) throws(BusFailure) -> Message {
        let message = try bus.newCall(destination: name, path: path, interface: interface, member: member)
        try message.forbidStart()
        return message
    }

    /// A call of `Get` or `GetAll` for the manager or a unit.
    ///
    /// - Parameter property: nil: all of the interface.
    static func get(
        _ property: String?, of interface: String = interface, at path: String = path, _ bus: Bus
    ) throws(BusFailure) -> Message {
        let message = try bus.newCall(
            destination: name, path: path, interface: properties, member: property == nil ? "GetAll" : "Get")
        try message.forbidStart()
        try message.append(interface)
        if let property { try message.append(property) }
        return message
    }

    /// A call that starts a transient unit, unless there is one of that name.
    static func start(
        _ unit: String, _ properties: [(String, Variant)], _ bus: Bus
    ) throws(BusFailure) -> Message {
        let message = try call("StartTransientUnit", bus)
        try message.append(unit)
        try message.append("fail")
        try message.withContainer(.array, "(sv)") { () throws(BusFailure) in
            for (name, value) in properties {
                try message.withContainer(.struct, "sv") { () throws(BusFailure) in
                    try message.append(name)
                    try message.append(value)
                }
            }
        }
        try message.withContainer(.array, "(sa(sv))") { () throws(BusFailure) in }
        return message
    }

    /// The wait for a service manager that runs but is not on the bus yet, because the session or its bus has just begun.
    final class Arrival {
        private var timer: Timer?
        private var slots: [Slot] = []
        private var done: ((_ isThere: Bool) -> Void)?

        /// - Parameters:
        ///   - patience: how long to wait, in microseconds.
        ///   - done: called once, from the loop.
        init(
            on bus: Bus, _ loop: EventLoop, within patience: UInt64,
            _ done: @escaping (_ isThere: Bool) -> Void
        ) throws(BusFailure) {
            self.done = done
            timer = try loop.timer { [weak self] in self?.end(false) }
            timer?.arm(at: loop.now + patience)
            slots = [
                try bus.watchOwner(
                    of: ServiceManager.name, failed: { _ in },
                    handler: { [weak self] _, owner in if owner != nil { self?.end(true) } }),
                // It may have appeared before the watch was set up.
                try bus.askProcess(of: ServiceManager.name) { [weak self] in if $0 != nil { self?.end(true) }
                },
            ]
        }

        private func end(_ isThere: Bool) {
            let done = done
            (self.done, timer, slots) = (nil, nil, [])
            done?(isThere)
        }
    }
}
