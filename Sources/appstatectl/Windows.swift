import AppStateBus
import AppStateContract
import ArgumentParser

struct Windows: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "List the windows of an application, or of all applications.")

    @OptionGroup var bus: BusOptions
    @OptionGroup var output: OutputOptions
    @Argument(help: "The application.", completion: .applications) var app: String?

    func run() throws {
        let client = try bus.connect()
        var rows = try client.applications()
        if let app {
            let path = try client.path(of: app)
            rows = rows.filter { $0.path == path }
            // The daemon says why there is none.
            if rows.isEmpty { _ = try client.windows(at: path) }
        }
        var found: [(row: Client.Row, window: [String: Variant])] = []
        for row in rows {
            do {
                found += try client.windows(at: row.path).map { (row, $0) }
            } catch let failure as Failure where failure.verdict == .noSuchApplication && app == nil {
                // It has ended meanwhile.
            }
        }
        output.show(
            found, asJSON: { Self.json($0.row, $0.window) },
            in: Table(["N", "APPLICATION", "STATE", "SESSION", "TITLE"], givingWay: [(4, 16), (1, 8)]),
            cells: { Self.cells($0.row, $0.window) },
            ifNone: "No windows are reported\(app.map { " for \($0)" } ?? "").")
    }

    private static func cells(_ row: Client.Row, _ window: [String: Variant]) -> [Line] {
        func text(_ key: ShownWindowKey) -> String {
            if case .string(let text)? = window[key.rawValue], !text.isEmpty { text } else { "–" }
        }
        let isMinimized = window[ShownWindowKey.minimized.rawValue] == .bool(true)
        return [
            Line(String(row.number)), Line(row.id), Line(text(.state) + (isMinimized ? " (minimized)" : "")),
            Line(text(.session)), Line(text(.title)),
        ]
    }

    private static func json(_ row: Client.Row, _ window: [String: Variant]) -> JSON {
        let own: [(String, JSON)] = [
            ("number", .unsigned(UInt64(row.number))), ("path", .string(row.path)),
            ("app_id", .string(row.id)),
        ]
        return .object(own + window.sorted { $0.key < $1.key }.map { ($0.key, JSON($0.value)) })
    }
}

struct Activate: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Bring an application to the front; it is resumed first.")

    @OptionGroup var bus: BusOptions
    @Argument(help: "The application.", completion: .applications) var app: String

    func run() throws {
        let client = try bus.connect()
        try client.call(ApplicationMethod.activate, at: try client.path(of: app)) {
            try $0.appendDictionary(Client.activationToken)
        }
    }
}

extension Client {
    /// The entries of `ListWindows`.
    fileprivate func windows(at path: String) throws -> [[String: Variant]] {
        try call(ApplicationMethod.listWindows, at: path).readDictionaries()
    }
}
