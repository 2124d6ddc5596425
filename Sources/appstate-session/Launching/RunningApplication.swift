import AppStateBus
import Linux

/// An application on the session bus, under its id: org.freedesktop.Application (Desktop Entry Specification, "D-Bus
/// Activation").
struct RunningApplication {
    private let bus: Bus
    private let id: String

    private static let interface = "org.freedesktop.Application"
    /// For an application to answer; microseconds.
    static let patience: UInt64 = 10_000_000
    /// For the bus to have it started; microseconds.
    private static let startPatience: UInt64 = 20_000_000

    init(_ id: String, on bus: Bus) {
        self.id = id
        self.bus = bus
    }

    /// Whether an id can be a name on the bus: two parts or more, none of which begins with a digit.
    static func isBusName(_ id: String) -> Bool {
        let parts = id.split(separator: ".", omittingEmptySubsequences: false)
        return id.utf8.count <= 255 && parts.count > 1
            && parts.allSatisfy { part in
                guard let first = part.utf8.first else { return false }
                return !(UInt8(ascii: "0")...UInt8(ascii: "9")).contains(first)
            }
    }

    /// Its object: the name with slashes for dots, and underscores for what a path may not have.
    static func path(of id: String) -> String {
        "/" + String(id.map { $0 == "." ? "/" : $0 == "-" ? "_" : $0 })
    }

    /// Has the bus start it, if it does not run.
    func start(_ answered: @escaping (MethodError?) -> Void) throws(BusFailure) -> Slot {
        let message = try bus.newDriverCall("StartServiceByName")
        try message.append(id)
        try message.append(UInt32(0))
        return try bus.callAsync(message, timeout: Self.startPatience) { answered($0.error) }
    }

    /// Asks which process it is.
    func askProcess(_ answered: @escaping (Int32?) -> Void) throws(BusFailure) -> Slot {
        try bus.askProcess(of: id, answered)
    }

    /// Has it show itself, or open something. It is not started for that.
    ///
    /// - Parameters:
    ///   - urls: to open; none: it shows itself.
    ///   - token: of what the user did, for its window; nil: there is none.
    ///   - answered: gets what is wrong; nil: nothing is.
    func present(
        _ urls: [String], token: String?, _ answered: @escaping (MethodError?) -> Void
    ) throws(BusFailure) -> Slot {
        let message = try bus.newCall(
            destination: id, path: Self.path(of: id), interface: Self.interface,
            member: urls.isEmpty ? "Activate" : "Open")
        try message.forbidStart()
        if !urls.isEmpty { try message.append(strings: urls) }
        // The second is what it was called before there was Wayland.
        try message.appendDictionary(
            token.map { token in
                [("activation-token", .string(token)), ("desktop-startup-id", .string(token))]
            } ?? [])
        return try bus.callAsync(message, timeout: Self.patience) { answered($0.error) }
    }
}
