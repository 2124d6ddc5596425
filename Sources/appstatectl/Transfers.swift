import AppStateBus
import AppStateContract
import ArgumentParser
import Glibc
import Linux

struct Transfers: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "List your background transfers and their progress.",
        discussion:
            "On a terminal, the list is shown again as long as a transfer runs or waits. Ctrl-C ends it.")

    @OptionGroup var session: SessionOptions
    @OptionGroup var output: OutputOptions
    @Flag(help: "Print the list once, on a terminal, too.") var once = false

    /// How often progress is shown. Microseconds.
    private static let pace: UInt32 = 250_000

    func run() throws {
        let client = try session.connect()
        var rows = try client.transfers()
        if output.json { return Terminal.emit(JSON.array(rows.map(\.json))) }
        if rows.isEmpty { return Terminal.warn("There are no transfers.") }
        guard Terminal.isTerminal, !once else {
            for row in rows { Terminal.emit(row.line(barWidth: 0).fitted) }
            return
        }
        var shown = 0
        while true {
            // Back to the first line of the former list; each line is cleared to its end.
            if shown > 0 { Terminal.emit(raw: "\u{1B}[\(shown + 1)A") }
            for row in rows { Terminal.emit(raw: row.line(barWidth: 20).fitted.text + "\u{1B}[K") }
            for _ in 0..<max(0, shown - rows.count) { Terminal.emit(raw: "\u{1B}[K") }
            shown = max(shown, rows.count)
            guard rows.contains(where: { !$0.isEnd }) else { return }
            usleep(Self.pace)
            rows = try client.transfers()
        }
    }
}

struct TransferCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "transfer", abstract: "Begin a background transfer, cancel it, or try it again.",
        subcommands: [Begin.self, Cancel.self, Retry.self], defaultSubcommand: Begin.self)

    struct Begin: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Begin a transfer, and print its number.",
            discussion: """
                Without --upload and FILE, the file gets the last part of the URL as its name, in the working \
                directory. The transfer goes on when this command and the session have ended.
                """)

        @OptionGroup var session: SessionOptions
        @Argument(help: "What to transfer, by http or https.") var url: String
        @Argument(help: "The file that the answer becomes.", completion: .file()) var file: String?
        @Option(help: "Send this file (PUT).", completion: .file()) var upload: String?
        @Option(
            name: .customLong("header"),
            help: ArgumentHelp("An additional line of the request.", valueName: "name: value"))
        var headers: [String] = []
        @Option(help: "The expected number of bytes.") var size: UInt64?
        @Option(help: "The expected SHA-256, in hexadecimal digits.") var sha256: String?
        @Flag(help: "Replace the file if it exists.") var replace = false
        @Flag(help: "Wait for mains power and a connection that is not metered.") var discretionary = false
        @Flag(help: "Wait while the connection is metered.") var onlyUnmetered = false
        @Option(help: "The application that is told of the end.", completion: .ownApplicationIDs)
        var application: String?

        func run() throws {
            var options: [(TransferOption, Variant)] = []
            let target = try file ?? (upload == nil ? Self.name(in: url) : nil)
            if let target { options.append((.target, .string(try UserFile.absolute(target)))) }
            if let upload { options.append((.upload, .string(try UserFile.existing(upload)))) }
            if !headers.isEmpty { options.append((.headers, .strings(headers))) }
            if let size { options.append((.size, .uint64(size))) }
            if let sha256 { options.append((.sha256, .string(sha256))) }
            if let application { options.append((.application, .string(application))) }
            for (key, flag) in [
                (TransferOption.replace, replace), (.discretionary, discretionary),
                (.onlyUnmetered, onlyUnmetered),
            ] where flag { options.append((key, .bool(true))) }
            let path = try session.connect().begin(url, options)
            Terminal.emit(Line(TransferNames.number(inPath: path).map { String($0) } ?? path))
        }

        /// The last part of a URL's path.
        private static func name(in url: String) throws -> String {
            let path = url.prefix { $0 != "?" && $0 != "#" }.split(
                separator: "/", omittingEmptySubsequences: false)
            guard path.count > 3, let name = path.last, !name.isEmpty, name != ".", name != ".." else {
                throw Failure("\"\(url)\" names no file: say which FILE it becomes", .usage)
            }
            return String(name)
        }
    }

    struct Cancel: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "End transfers and forget them; those that have ended are only forgotten.")

        @OptionGroup var session: SessionOptions
        @Argument(help: "The numbers of the transfers.") var numbers: [UInt64]

        func run() throws {
            let client = try session.connect()
            for number in numbers { try client.call(.cancel, number) }
        }
    }

    struct Retry: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Try transfers again that have failed, or wait for their next attempt.")

        @OptionGroup var session: SessionOptions
        @Argument(help: "The numbers of the transfers.") var numbers: [UInt64]

        func run() throws {
            let client = try session.connect()
            for number in numbers { try client.call(.retry, number) }
        }
    }
}

/// The bus on which transfers are reached.
struct SessionOptions: ParsableArguments {
    @Option(help: ArgumentHelp("The bus to use instead of the session bus.", valueName: "address"))
    var address: String?

    func connect() throws -> TransferClient { try TransferClient(address: address) }
}

/// The transfer program, from the client's point of view.
final class TransferClient {
    private let bus: Bus

    init(address: String?) throws {
        let own = address ?? Environment["DBUS_SESSION_BUS_ADDRESS"]
        guard let address = own ?? Environment["XDG_RUNTIME_DIR"].map({ "unix:path=\($0)/bus" }) else {
            throw Failure("there is no session bus: DBUS_SESSION_BUS_ADDRESS is not set", .notRunning)
        }
        do throws(BusFailure) {
            bus = try Bus.open(address: address)
        } catch {
            throw Failure("the session bus cannot be reached: \(error.sentence)", .notRunning)
        }
    }

    struct Row {
        let number: UInt64
        let properties: [(key: String, value: Variant)]

        func text(_ property: TransferProperty) -> String {
            if case .string(let text)? = value(property) { text } else { "" }
        }

        func count(_ property: TransferProperty) -> UInt64 {
            if case .uint64(let count)? = value(property) { count } else { 0 }
        }

        private func value(_ property: TransferProperty) -> Variant? {
            properties.first { $0.key == property.rawValue }?.value
        }

        var isEnd: Bool { TransferState(rawValue: text(.state))?.isEnd == true }

        var json: JSON {
            .object([("number", .unsigned(number))] + properties.map { ($0.key, JSON($0.value)) })
        }

        /// - Parameter barWidth: 0: no bar.
        func line(barWidth: Int) -> Line {
            let (received, total) = (count(.received), count(.total))
            let percent = total > 0 ? Int(min(received, total) * 100 / total) : nil
            var words = String(number)
            if barWidth > 0 {
                let filled = (percent ?? 0) * barWidth / 100
                words +=
                    " [" + String(repeating: "#", count: filled)
                    + String(repeating: ".", count: barWidth - filled) + "]"
            }
            words += " \(percent.map { "\($0)%" } ?? "?") \(memory(received))"
            if total > 0 { words += " of \(memory(total))" }
            words += " \(text(.state))"
            if !text(.waitsFor).isEmpty { words += " (\(text(.waitsFor)))" }
            words += " " + (text(.target).isEmpty ? text(.url) : text(.target))
            if !text(.application).isEmpty { words += " for \(text(.application))" }
            if !text(.error).isEmpty, text(.state) != TransferState.running.rawValue {
                words += ": \(text(.error))"
            }
            return Line(words)
        }
    }

    func transfers() throws -> [Row] {
        let reply = try call(TransferNames.root, BusNames.objectManager, "GetManagedObjects")
        var rows: [Row] = []
        try reply.withEntered(.array, "{oa{sa{sv}}}") {
            while try reply.enter(.dictEntry, "oa{sa{sv}}") {
                let path = try reply.readObjectPath()
                _ = try reply.enter(.array, "{sa{sv}}")
                while try reply.enter(.dictEntry, "sa{sv}") {
                    let interface = try reply.readString()
                    let properties = try reply.readDictionary()
                    if interface == TransferNames.transfer, let number = TransferNames.number(inPath: path) {
                        rows.append(Row(number: number, properties: properties))
                    }
                    try reply.exit()
                }
                try reply.exit()
                try reply.exit()
            }
        }
        return rows.sorted { $0.number < $1.number }
    }

    func begin(_ url: String, _ options: [(TransferOption, Variant)]) throws -> String {
        try call(TransferNames.root, TransfersMethod.interface, TransfersMethod.begin.rawValue) { message in
            try message.append(url)
            try message.appendDictionary(options.map { ($0.0.rawValue, $0.1) })
        }.readObjectPath()
    }

    func call(_ method: TransferMethod, _ number: UInt64) throws {
        _ = try call(TransferNames.path(of: number), TransferMethod.interface, method.rawValue)
    }

    private func call(
        _ path: String, _ interface: String, _ member: String,
        _ body: (borrowing Message) throws -> Void = { _ in }
    ) throws -> Message {
        do {
            let message = try bus.newCall(
                destination: TransferNames.service, path: path, interface: interface, member: member)
            try body(message)
            return try bus.call(message)
        } catch let error as BusFailure {
            if let closed = Client.closed(error, "the session bus") { throw closed }
            if error.name.flatMap(Absence.init(error:)) != nil {
                throw Failure("appstate-transfer cannot be started: \(error.sentence)", .notRunning)
            }
            if error.name == "org.freedesktop.DBus.Error.UnknownObject",
                let number = TransferNames.number(inPath: path)
            {
                throw Failure("there is no transfer \(number)")
            }
            throw Failure(error.sentence)
        }
    }
}
