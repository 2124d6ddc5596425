import AppStateBus
import AppStateContract
import TestSupport
import Testing

/// A daemon with an application that has the focus, and a client that sees everything that happens. Tests check against
/// it that a refused call changes nothing.
final class Stage {
    let daemon: TestDaemon
    /// Subscribed to everything.
    let client: Client
    /// The process of the application.
    let process: Child
    let path: String

    init(configuration: String = "") throws {
        daemon = try TestDaemon(configuration: configuration)
        client = try daemon.subscriber()
        process = try Child("sleep", ["1000"])
        path = try client.register("org.example.Editor", process.pid)
        try client.setFocus(process.pid)
        try client.updateWindow(7, process.pid, [("title", .string("Unsaved")), ("focused", .bool(true))])
        try client.wait(for: path, toBe: "active")
        // The resources of the background are taken back a moment later.
        try client.wait("its own resources") { try client.explain(path)["resources"] == .strings([]) }
        try client.settle()
        client.forget()
    }

    /// Runs a call that must be refused with this error and must change nothing: not the list, no explanation, not the
    /// focus. No signal may be sent.
    func refuses(
        _ name: ErrorName, _ what: String, at location: SourceLocation = #_sourceLocation,
        _ call: () throws -> Void
    ) throws {
        try refuses(name.rawValue, what, at: location, call)
    }

    func refuses(
        _ name: String, _ what: String, at location: SourceLocation = #_sourceLocation,
        _ call: () throws -> Void
    ) throws {
        let before = try client.picture()
        try client.settle()
        client.forget()
        let error = client.error(of: call)
        #expect(error == name, "\(what)", sourceLocation: location)
        try client.settle()
        #expect(client.received == [], "\(what): signals", sourceLocation: location)
        #expect(try client.picture() == before, "\(what): changes", sourceLocation: location)
    }
}

extension ErrorName {
    /// The errors of the D-Bus specification that libsystemd returns by itself.
    static let unknownMethod = "org.freedesktop.DBus.Error.UnknownMethod"
    static let unknownObject = "org.freedesktop.DBus.Error.UnknownObject"
    static let unknownProperty = "org.freedesktop.DBus.Error.UnknownProperty"
    static let propertyReadOnly = "org.freedesktop.DBus.Error.PropertyReadOnly"
}
