import AppStateBus
import AppStateContract
import LifeCycle
import Linux
import Systemd

/// The properties of the two interfaces that have any, for those who read them and for those who are told of changes.
struct Properties {
    let manager: Interface
    let application: Interface

    init(
        core: Core, table: ApplicationTable, proc: Proc, access: Access, sessions: SessionSensor,
        sensor: StopSensor
    ) {
        let values = PropertyValues(
            core: core, table: table, proc: proc, access: access, sessions: sessions, sensor: sensor)
        manager = Interface(BusNames.manager, properties: values.manager)
        application = Interface(BusNames.application, properties: values.application)
    }
}

private struct PropertyValues {
    let core: Core
    let table: ApplicationTable
    let proc: Proc
    let access: Access
    let sessions: SessionSensor
    let sensor: StopSensor

    // MARK: org.appstate1.Manager

    var manager: [Property] {
        [
            property(.version, "s", .const) { try $0.append(Product.version) },
            property(.memoryPressure, "s", .change) { try $0.append(core.machine.memoryPressure.rawValue) },
            property(.focusedApplication, "o", .change) {
                try $0.append(objectPath: path(of: focusedApplication))
            },
            property(.frontActivity, "(osa{sv})", .none) { try appendFrontActivity(to: $0) },
            property(.stopDetection, "s", .change) { try $0.append(sensor.detection.rawValue) },
            property(.mode, "s", .change) { try $0.append(core.machine.settings.mode.rawValue) },
            property(.refusedLines, "u", .change) { try $0.append(UInt32(clamping: core.refusedLines)) },
        ]
    }

    private func property(
        _ name: ManagerProperty, _ type: String, _ changes: Property.Changes,
        _ value: @escaping (borrowing Message) throws -> Void
    ) -> Property {
        Property(name.rawValue, type, emits: changes) { message, _ in try value(message) }
    }

    /// `/` if there is none.
    private func path(of application: Application?) -> String {
        application.map { BusNames.path(ofApplication: $0.number.rawValue) } ?? "/"
    }

    /// nil if no application has the focus in the reader's session, or one that the reader may not see.
    private var focusedApplication: Application? {
        access.reader.flatMap {
            application(core.machine.focusedApplication(in: sessions.key(of: $0)), for: $0)
        }
    }

    private func application(_ number: ApplicationNumber?, for reader: Connection) -> Application? {
        guard let application = number.flatMap(core.application), access.maySee(application, reader) else {
            return nil
        }
        return application
    }

    /// The application in front, and its activity: what is continued on another machine. Both are the reader's own
    /// user's, or the reader is root.
    private func appendFrontActivity(to message: borrowing Message) throws {
        let front = frontApplication(for: try access.caller())
        try message.withContainer(.struct, "osa{sv}") {
            try message.append(objectPath: path(of: front))
            try append(front.flatMap { table[$0.number]?.userActivity }, to: message)
        }
    }

    /// A caller that came through ssh(1) has a session of its own, in which there are no windows.
    private func frontApplication(for connection: Connection) -> Application? {
        let number =
            core.machine.focusedApplication(in: sessions.key(of: connection))
            ?? Login.displaySession(ofUser: connection.user).flatMap {
                core.machine.focusedApplication(in: .login($0))
            }
            ?? core.machine.focusedApplication(in: .user(connection.user))
        return application(number, for: connection)
    }

    /// The type and the info of an activity; both are empty if there is none.
    private func append(_ activity: Registered.UserActivity?, to message: borrowing Message) throws {
        try message.append(activity?.type ?? "")
        let info = activity?.info ?? [:]
        try message.appendDictionary(info.sorted { $0.key < $1.key }.map { ($0.key, $0.value) })
    }

    // MARK: org.appstate1.Application

    var application: [Property] {
        [
            property(.id, "s", .const) { try $0.append($1.id.rawValue) },
            property(.pid, "u", .const) { try $0.append(UInt32($1.process.pid)) },
            property(.uid, "u", .const) { try $0.append($1.user) },
            property(.state, "s", .change) { try $0.append($1.state.rawValue) },
            property(.stateTimestamp, "t", .change) {
                try $0.append(table[$1.number]?.stateSince ?? 0)
            },
            property(.stateTimestampMonotonic, "t", .change) { try $0.append($1.stateSince) },
            property(.registeredTimestamp, "t", .const) {
                try $0.append(table[$1.number]?.registeredAt ?? 0)
            },
            property(.registeredTimestampMonotonic, "t", .const) { try $0.append($1.registeredAt) },
            property(.launching, "b", .change) { try $0.append($1.isLaunching) },
            property(.terminating, "b", .change) { try $0.append($1.isTerminating) },
            property(.adopted, "b", .const) { try $0.append($1.isAdopted) },
            property(.focused, "b", .change) { try $0.append($1.isFocused) },
            property(.visible, "b", .change) { try $0.append($1.isVisible) },
            property(.minimized, "b", .change) { try $0.append($1.isMinimized) },
            property(.suspension, "s", .change) { try $0.append($1.suspension.rawValue) },
            property(.reclaimable, "b", .change) { try $0.append($1.reclaimable) },
            property(.reclaimRank, "u", .change) { try $0.append($1.outlook.rank.map(\.place) ?? 0) },
            property(.protectedDataAvailable, "b", .change) { try $0.append(!$1.isLocked) },
            property(.unresponsive, "s", .change) { try $0.append($1.unresponsive?.rawValue ?? "") },
            property(.unsavedChanges, "b", .change) { try $0.append($1.hasUnsavedChanges) },
            property(.backgroundModes, "as", .change) { try $0.append(strings: $1.backgroundModes) },
            property(.suspendHolds, "a(ss)", .change) { try $0.append(rows: .holds($1)) },
            property(.suspensionDeadline, "t", .change) { try $0.append($1.outlook.deadline ?? .never) },
            property(.objections, "as", .change) { try $0.append(strings: $1.outlook.objections) },
            property(.inhibitors, "a(ss)", .change) { try $0.append(rows: .inhibitors($1)) },
            property(.backgroundTasks, "a(tst)", .change) { try $0.append(rows: .tasks($1)) },
            property(.continuedTasks, "aa{sv}", .change) { try $0.append(continuedTasksOf: $1) },
            property(.launchOptions, "a{sv}", .change) {
                let options = table[$1.number]?.launchOptions ?? []
                try $0.appendDictionary(
                    isReadByItself($1) ? options : options.filter { Self.isPublic($0.0) })
            },
            property(.userActivity, "(sa{sv})", .invalidation) { message, application in
                try message.withContainer(.struct, "sa{sv}") {
                    try append(table[application.number]?.userActivity, to: message)
                }
            },
            property(.session, "s", .const) {
                try $0.append(table[$1.number]?.session ?? "")
            },
            property(.unit, "s", .const) {
                try $0.append(table[$1.number]?.unit ?? "")
            },
            property(.memoryUsage, "t", .none) { try $0.append(memoryUsage(of: $1)) },
        ]
    }

    private func property(
        _ name: ApplicationProperty, _ type: String, _ changes: Property.Changes,
        _ value: @escaping (borrowing Message, Application) throws -> Void
    ) -> Property {
        Property(name.rawValue, type, emits: changes) { message, path in
            // Whether the caller may read it was decided when the object was found.
            guard let number = BusNames.applicationNumber(inPath: path),
                let application = core.application(ApplicationNumber(number))
            else { throw MethodError(.noSuchApplication, "No application at \(path)") }
            try value(message, application)
        }
    }

    /// Whether the property is being read by one of the application's own processes. No other client reads what was sent
    /// to the application.
    private func isReadByItself(_ application: Application) -> Bool {
        access.reader.map { access.isOwn(application, $0) } ?? false
    }

    /// Whether a launch option says why and how the application was launched, not with what.
    private static func isPublic(_ launchOption: String) -> Bool {
        LaunchOption(rawValue: launchOption) != nil || launchOption == SenderKey.application
            || [LaunchKey.reason, .launchMode].contains(LaunchKey(rawValue: launchOption))
    }

    /// The sum of the resident sizes of its processes in bytes. Memory that they share is counted for each of them.
    private func memoryUsage(of application: Application) -> UInt64 {
        guard let main = table[application.number]?.process else { return 0 }
        return Extent.members(of: main, proc: proc, isForeign: table.isForeign).reduce(0) {
            $0 &+ ((try? proc.residentBytes($1.pid)) ?? 0)
        }
    }
}

extension ReclaimPolicy.Rank {
    /// The value of `ReclaimRank`: 1 for those that are ended first.
    fileprivate var place: UInt32 { UInt32(rawValue) + 1 }
}

extension Variant {
    /// `a(ss)`: reason and holder.
    static func holds(_ application: Application) -> Variant {
        .array(
            "(ss)",
            application.allHolds.map { .structure([.string($0.reason.rawValue), .string($0.holder)]) })
    }

    /// `a(ss)`: who and why.
    static func inhibitors(_ application: Application) -> Variant {
        .array(
            "(ss)", application.inhibitors.map { .structure([.string($0.who), .string($0.why)]) })
    }

    /// `a(tst)`: id, name and deadline.
    static func tasks(_ application: Application) -> Variant {
        .array(
            "(tst)",
            application.tasks.map { .structure([.uint64($0.id), .string($0.name), .uint64($0.deadline)]) })
    }
}

extension Message {
    /// Appends the value without a variant, where the container has the value's own type.
    fileprivate borrowing func append(rows value: Variant) throws(BusFailure) {
        guard case .array(let element, let values) = value else { return }
        try withContainer(.array, element) {
            for value in values {
                guard case .structure(let members) = value else { continue }
                try withContainer(.struct, String(element.dropFirst().dropLast())) {
                    for member in members {
                        switch member {
                        case .string(let text): try append(text)
                        case .uint64(let number): try append(number)
                        default: preconditionFailure("rows are made of strings and numbers")
                        }
                    }
                }
            }
        }
    }
}
