import AppStateBus
import AppStateContract
import TestSupport
import Testing

/// A daemon with an application that has the focus, and somebody who sees everything that happens: what a
/// refused call is held against.
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
        try client.settle()
        client.forget()
    }

    /// Runs a call that must be refused with this error, and after which nothing may have changed: nothing in
    /// the list, in an explanation, in the focus; no signal was sent.
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
    /// The ones of the D-Bus specification that libsystemd answers by itself.
    static let unknownMethod = "org.freedesktop.DBus.Error.UnknownMethod"
    static let unknownObject = "org.freedesktop.DBus.Error.UnknownObject"
    static let unknownProperty = "org.freedesktop.DBus.Error.UnknownProperty"
    static let propertyReadOnly = "org.freedesktop.DBus.Error.PropertyReadOnly"
    static let unknownInterface = "org.freedesktop.DBus.Error.UnknownInterface"
}
