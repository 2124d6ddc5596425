import AppStateBus
import Linux

/// An application that owns its id as a name on the session bus: org.freedesktop.Application (Desktop Entry
/// Specification, "D-Bus Activation").
struct RunningApplication {
    let bus: Bus
    private let id: String

    private static let interface = "org.freedesktop.Application"
    /// How long an application may take to answer, in microseconds.
    static let patience: UInt64 = 10_000_000
    /// How long the bus may take to start an application, in microseconds.
    private static let startPatience: UInt64 = 20_000_000

    init(_ id: String, on bus: Bus) {
        self.id = id
        self.bus = bus
    }

    /// Whether an id can be a name on the bus: it has two or more parts, and none begins with a digit.
    static func isBusName(_ id: String) -> Bool {
        let parts = id.split(separator: ".", omittingEmptySubsequences: false)
        return id.utf8.count <= 255 && parts.count > 1
            && parts.allSatisfy { part in
                guard let first = part.utf8.first else { return false }
                return !(UInt8(ascii: "0")...UInt8(ascii: "9")).contains(first)
            }
    }

    /// The object path: the name with slashes instead of dots, and underscores for characters that a path may not have.
    static func path(of id: String) -> String {
        "/" + String(id.map { $0 == "." ? "/" : $0 == "-" ? "_" : $0 })
    }

    /// Whether an error is that of a bus that has nothing to start for a name.
    static func isAbsence(_ error: MethodError) -> Bool {
        ["org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner"]
            .contains(error.name)
    }

    /// Makes the bus start the application if it does not run.
    func start(_ answered: @escaping (MethodError?) -> Void) throws(BusFailure) -> Slot {
        let message = try bus.newDriverCall("StartServiceByName")
        try message.append(id)
        try message.append(UInt32(0))
        return try bus.callAsync(message, timeout: Self.startPatience) { answered($0.error) }
    }

    /// Makes the application show itself or open URLs. It is not started for that.
    ///
    /// - Parameters:
    ///   - urls: the URLs to open; empty: the application shows itself.
    ///   - token: the activation token of the user's action, for the window; nil: there is none.
    ///   - answered: gets the error; nil: there is none.
    func present(
        _ urls: [String], token: String?, _ answered: @escaping (MethodError?) -> Void
    ) throws(BusFailure) -> Slot {
        let message = try bus.newCall(
            destination: id, path: Self.path(of: id), interface: Self.interface,
            member: urls.isEmpty ? "Activate" : "Open")
        try message.forbidStart()
        if !urls.isEmpty { try message.append(strings: urls) }
        // The second key is the name from the time before Wayland.
        try message.appendDictionary(
            token.map { token in
                [("activation-token", .string(token)), ("desktop-startup-id", .string(token))]
            } ?? [])
        return try bus.callAsync(message, timeout: Self.patience) { answered($0.error) }
    }
}
