import AppStateBus
import AppStateContract

/// The process as an application that registered itself, on its own connection.
final class Registration {
    private let bus: Bus
    let path: String

    /// As long as tests wait, in microseconds.
    private static let patience: UInt64 = 300_000_000

    init(id: String) throws {
        bus = try Bus.system()
        let message = try bus.newCall(
            destination: BusNames.service, path: BusNames.root, interface: BusNames.manager,
            member: "Register")
        try message.append(id)
        try message.append(UInt32(0))
        try message.appendDictionary([])
        path = try bus.call(message, timeout: Self.patience).readObjectPath()
    }

    /// Calls a method of the application.
    func call(_ member: String) throws {
        let message = try bus.newCall(
            destination: BusNames.service, path: path, interface: BusNames.application, member: member)
        _ = try bus.call(message, timeout: Self.patience)
    }
}
