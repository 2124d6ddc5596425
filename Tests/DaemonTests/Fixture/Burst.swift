import AppStateBus
import AppStateContract
import TestSupport

/// Applications whose windows are restored and minimized in turn: each event is one edge, and about four
/// signals to each subscriber.
final class Burst {
    /// A client that is subscribed, and reads all the time.
    let live: Client
    /// What the live subscriber was sent so far.
    private(set) var heard: [Client.Received] = []
    let applications: [(path: String, process: Child)]
    /// A client that is not subscribed, so that it need not read.
    private let reporter: Client
    private var events = 0

    /// So few that a subscriber that reads after each batch is never near the limit.
    private static let batch = 16

    init(_ daemon: TestDaemon) throws {
        live = try daemon.subscriber()
        let reporter = try daemon.client()
        self.reporter = reporter
        applications = try (0..<4).map { number in
            let process = try Child("sleep", ["1000"])
            let path = try reporter.register("org.example.App\(number)", process.pid)
            try reporter.setMinimized(process.pid, true)
            return (path, process)
        }
        try live.catchUp()
    }

    /// Causes this many events, one after the other. Fails unless the live subscriber got each event in order by the
    /// end of its batch.
    func happen(_ count: Int, betweenBatches: () throws -> Void = {}) throws {
        var left = count
        while left > 0 {
            let size = min(left, Self.batch)
            left -= size
            let edges = try (0..<size).map { _ in try cause() }
            // Its calls are carried out in order: when this call is answered, all were.
            try reporter.settle()
            try live.settle()
            let news = live.received
            live.forget()
            heard += news
            guard edges == Self.edges(in: news, of: applications.map(\.path)) else {
                throw TestFailure("not \(edges), but:\n\(news.map(\.description).joined(separator: "\n"))")
            }
            try betweenBatches()
        }
    }

    /// The edges of these applications, in the order in which they were sent.
    static func edges(in signals: [Client.Received], of paths: [String]) -> [String] {
        signals.filter {
            $0.interface == BusNames.application && $0.member == "StateChanged" && paths.contains($0.path)
        }
        .map { "\($0.path) \($0.arguments[0])→\($0.arguments[1])" }
    }

    /// Sends one call without waiting for it; returns the edge that it must cause.
    private func cause() throws -> String {
        let (path, process) = applications[events % applications.count]
        let isMinimized = events / applications.count % 2 == 1
        events += 1
        let call = try reporter.bus.newCall(
            destination: BusNames.service, path: BusNames.root, interface: BusNames.reporter,
            member: "SetMinimized")
        try call.append(UInt32(process.pid))
        try call.append(isMinimized)
        try reporter.bus.send(call)
        return "\(path) " + (isMinimized ? "inactive→background" : "background→inactive")
    }
}
