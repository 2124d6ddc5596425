import AppStateBus
import AppStateContract
import ArgumentParser
import Glibc

struct History: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Show how the last runs of one of your applications ended, latest first.",
        discussion: "Without an id, list the ids of the applications of which this is known.")

    @OptionGroup var bus: BusOptions
    @OptionGroup var output: OutputOptions
    @Option(help: ArgumentHelp("List the ids of this user's applications; for root.", valueName: "uid"))
    var user: UInt32?
    @Argument(
        help: "The application's id; it need not be running.",
        completion: .applicationIDs)
    var id: String?

    func validate() throws {
        guard let id else { return }
        try refuseNoID(id)
        if user != nil { throw ValidationError("--user lists ids; it takes none.") }
    }

    func run() throws {
        guard let id else { return try list() }
        let ends = try bus.connect().history(of: id)
        let hint = UInt32(id) == nil ? "" : " (history takes an application's id, not its number)"
        output.show(
            ends, asJSON: \.json,
            in: Table(["TIME", "REASON", "STATE BEFORE", "STATUS"], givingWay: [(2, 4), (1, 4)]),
            cells: {
                [
                    Line(localTime($0.time)), Line($0.reason), Line(state: $0.state.isEmpty ? "–" : $0.state),
                    Line($0.statusText),
                ]
            }, ifNone: "No end of \(id) is recorded\(hint).")
    }

    private func list() throws {
        let options = user.map { [(HistoryKey.user, Variant.uint32($0))] } ?? []
        let ids = try bus.connect().call(ManagerMethod.listHistory) { try $0.appendDictionary(options) }
            .readStrings()
        if output.json { return Terminal.emit(JSON(.strings(ids))) }
        if ids.isEmpty { Terminal.warn("No ends are recorded.") }
        for id in ids { Terminal.emit(Line(id)) }
    }
}

struct Forget: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Delete what one of your applications has saved, and how its runs ended.")

    @OptionGroup var bus: BusOptions
    @Argument(help: "The application's id; it must not be running.") var id: String

    func validate() throws { try refuseNoID(id) }

    func run() throws {
        try bus.connect().call(ManagerMethod.forgetApplication) { try $0.append(id) }
    }
}

extension Client {
    /// An entry of `GetHistory`.
    struct End {
        /// CLOCK_REALTIME, microseconds.
        let time: UInt64
        let reason: String
        let state: String
        let status: Int32

        /// The exit status or the signal, for users. The daemon does not report which of the two it is.
        var statusText: String {
            guard status >= 0 else { return "–" }
            switch ExitReason(rawValue: reason) {
            case .exited, .rebooted, .unknown, .unregistered, nil: return String(status)
            case .crashed, .killed, .outOfMemory: return "signal \(status)"
            case .forceQuit, .reclaimed, .unresponsive:
                return status == SIGKILL ? "signal \(status)" : eitherText
            case .terminated: return eitherText
            }
        }

        /// SIGTERM may have ended the process, or made it exit.
        private var eitherText: String {
            (1...Self.greatestSignal).contains(status) ? "\(status) (exit status or signal)" : String(status)
        }

        private static let greatestSignal: Int32 = 64

        var json: JSON {
            .object([
                ("time", .unsigned(time)), ("reason", .string(reason)), ("state", .string(state)),
                ("status", .signed(Int64(status))),
            ])
        }
    }

    func history(of id: String) throws -> [End] {
        let reply = try call(ManagerMethod.getHistory) { try $0.append(id) }
        var ends: [End] = []
        try reply.withEntered(.array, "(tssi)") {
            while !reply.atEnd {
                try reply.withEntered(.struct, "tssi") {
                    ends.append(
                        End(
                            time: try reply.readUInt64(), reason: try reply.readString(),
                            state: try reply.readString(), status: try reply.readInt32()))
                }
            }
        }
        return ends
    }
}

/// A moment of CLOCK_REALTIME in microseconds, as local time for users.
func localTime(_ time: UInt64) -> String {
    var seconds = time_t(clamping: time / 1_000_000)
    var parts = tm()
    localtime_r(&seconds, &parts)
    return String(unsafeUninitializedCapacity: 64) { buffer in
        buffer.withMemoryRebound(to: CChar.self) { text in
            text.baseAddress.map { strftime($0, text.count, "%Y-%m-%d %H:%M:%S", &parts) } ?? 0
        }
    }
}
