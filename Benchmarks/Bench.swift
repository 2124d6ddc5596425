import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport

/// Measures durations against a baseline of the same run. Prints Markdown tables, and checks no limits.
@main
enum Bench {
    static func main() throws {
        if CommandLine.arguments.count == 3, CommandLine.arguments[1] == "--spinner" {
            return try spin(CommandLine.arguments[2])
        }
        if CommandLine.arguments.dropFirst().first == "--hog" {
            return take(CommandLine.arguments.dropFirst(2).compactMap { Int($0) })
        }
        if CommandLine.arguments.count == 4, CommandLine.arguments[1] == "--attack",
            let attack = Attack(rawValue: CommandLine.arguments[2])
        {
            try attack.run(CommandLine.arguments[3])
        }
        if CommandLine.arguments.count == 3, CommandLine.arguments[1] == "--bystander" {
            try Bystander.run(CommandLine.arguments[2])
        }
        guard let daemon = Programs.beside("appstated") else {
            print("bench: appstated is not built beside this program")
            exit(1)
        }
        print("| Measured | median | p99 | ratio of medians |")
        print("| --- | --- | --- | --- |")
        switch CommandLine.arguments.dropFirst().first {
        case nil: try all(daemon)
        case "stopping": try stopping(daemon)
        case "footprint": try footprint(daemon)
        case "freezing": try freezing(daemon)
        case "waking": try waking(daemon)
        case "reclaiming": try reclaiming(daemon)
        case "library": try library(daemon)
        case "siege":
            let names = CommandLine.arguments.dropFirst(2)
            let attacks = names.compactMap(Attack.init)
            guard attacks.count == names.count else {
                let known = Attack.allCases.map(\.rawValue).joined(separator: ", ")
                print("bench: attacks are \(known)")
                exit(2)
            }
            try siege(daemon, only: attacks)
        case let name?:
            print(
                "bench: no part is called \(name); there are stopping, freezing, waking, reclaiming, "
                    + "footprint, library and siege")
            exit(2)
        }
    }

    private static func stopping(_ daemon: String) throws {
        let baseline = try stopsSeenByParent(200)
        row("baseline: kill -STOP to the parent's waitid(WSTOPPED)", baseline, nil)
        try withDaemon(daemon) { client in
            let ping = try roundTrips(client, 500)
            row("baseline: D-Bus round trip to the daemon (Peer.Ping)", ping, nil)
            let stops = try stops(client, 200)
            row("kill -STOP to a subscriber's StateChanged(suspended), tracepoint", stops, ping)
            row(
                "kill -CONT to a subscriber's last StateChanged, tracepoint", try continuations(client, 200),
                ping)
            row("Register, a new process each", try registrations(client, 100), ping)
        }
        if getuid() == 0 {
            try withDaemon(daemon, polling: true) { client in
                row(
                    "kill -STOP to a subscriber's StateChanged(suspended), polling", try stops(client, 10),
                    baseline)
            }
        }
    }

    private static func all(_ daemon: String) throws {
        try stopping(daemon)
        if TestCgroup.isAvailable {
            try freezing(daemon)
            try waking(daemon)
        } else {
            print("\nNot measured: freezing, which \(TestCgroup.whatIsMissing).\n")
        }
        if MemoryLimit.isAvailable {
            try reclaiming(daemon)
        } else {
            print("\nNot measured: reclaiming, which \(MemoryLimit.whatIsMissing).\n")
        }
        try siege(daemon)
        try footprint(daemon)
        try library(daemon)
    }

    // MARK: Figures

    /// Prints a row of the table.
    ///
    /// - Parameters:
    ///   - times: in nanoseconds, like those of the baseline.
    ///   - tail: whether the ratio is that of the 99th percentiles instead of the medians. The row says so.
    static func row(_ what: String, _ times: [UInt64], _ baseline: [UInt64]?, tail: Bool = false) {
        let percent = tail ? 99 : 50
        let ratio = baseline.map { base in
            let value = Double(quantile(times, percent)) / Double(max(quantile(base, percent), 1))
            return String(format: "%.1f", value) + (tail ? " (p99)" : "")
        }
        print("| \(what) | \(text(quantile(times, 50))) | \(text(quantile(times, 99))) | \(ratio ?? "1") |")
    }

    private static func quantile(_ times: [UInt64], _ percent: Int) -> UInt64 {
        let sorted = times.sorted()
        return sorted[min(sorted.count - 1, sorted.count * percent / 100)]
    }

    private static func text(_ nanoseconds: UInt64) -> String {
        nanoseconds < 10_000_000 ? "\(nanoseconds / 1_000) µs" : "\(nanoseconds / 1_000_000) ms"
    }

    static var now: UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }

    // MARK: What is measured

    private static func stopsSeenByParent(_ count: Int) throws -> [UInt64] {
        let child = try Child("sleep", ["1000"])
        var times: [UInt64] = []
        for _ in 0..<count {
            let begin = now
            kill(child.pid, SIGSTOP)
            var info = siginfo_t()
            waitid(P_PID, id_t(child.pid), &info, WSTOPPED)
            times.append(now - begin)
            kill(child.pid, SIGCONT)
            waitid(P_PID, id_t(child.pid), &info, WCONTINUED)
        }
        return times
    }

    private static func roundTrips(_ client: Subscriber, _ count: Int) throws -> [UInt64] {
        try (0..<count).map { _ in
            let begin = now
            try client.call("/", "org.freedesktop.DBus.Peer", "Ping") { _ in }
            return now - begin
        }
    }

    private static func stops(_ client: Subscriber, _ count: Int) throws -> [UInt64] {
        try edges(client, count).map(\.stop)
    }

    private static func continuations(_ client: Subscriber, _ count: Int) throws -> [UInt64] {
        try edges(client, count).map(\.go)
    }

    private static func edges(_ client: Subscriber, _ count: Int) throws -> [(stop: UInt64, go: UInt64)] {
        let child = try Child("sleep", ["1000"])
        try client.register(child.pid)
        return try (0..<count).map { _ in
            let begin = now
            kill(child.pid, SIGSTOP)
            try client.wait(for: "suspended")
            let stopped = now
            kill(child.pid, SIGCONT)
            try client.wait(for: "background")
            return (stopped - begin, now - stopped)
        }
    }

    private static func registrations(_ client: Subscriber, _ count: Int) throws -> [UInt64] {
        let children = try (0..<count).map { _ in try Child("sleep", ["1000"]) }
        return try children.map { child in
            let begin = now
            try client.register(child.pid)
            return now - begin
        }
    }

    private static func footprint(_ daemon: String) throws {
        let starts = try (0..<20).map { _ in try startTime(daemon) }
        let trues = try (0..<20).map { _ in try trueTime() }
        row("baseline: exec of true(1) to its end", trues, nil)
        row("exec of the daemon to READY=1", starts, trues)
        print("\n| Daemon | PSS | threads |\n| --- | --- | --- |")
        for count in [0, 100, 1_000] {
            let bus = try PrivateBus(policy: everything)
            let process = try start(daemon, bus, polling: false)
            let client = try Subscriber(bus)
            let children = try (0..<count).map { _ in try Child("sleep", ["1000"]) }
            for child in children { try client.register(child.pid) }
            let rollup = try String(contentsOfFile: "/proc/\(process.pid)/smaps_rollup", encoding: .utf8)
            let pss = rollup.split(separator: "\n").first { $0.hasPrefix("Pss:") } ?? "?"
            let threads = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(process.pid)/task")
                .count
            let size = pss.split(separator: " ").dropFirst().joined(separator: " ")
            print("| \(count) applications | \(size) | \(threads) |")
        }
    }

    private static func startTime(_ daemon: String) throws -> UInt64 {
        let bus = try PrivateBus(policy: everything)
        let notify = try NotifySocket(in: bus.directory)
        let environment = bus.environment.merging(["NOTIFY_SOCKET": notify.path]) { $1 }
        let begin = now
        let process = try Child(daemon, ["--config", "/dev/null"], environment: environment)
        try notify.wait(for: "READY=1", from: process)
        return now - begin
    }

    private static func trueTime() throws -> UInt64 {
        let begin = now
        try Child("true").waitForExit()
        return now - begin
    }

    // MARK: The bus and the daemon

    static let everything =
        "<policy context=\"default\"><allow own=\"*\"/><allow send_destination=\"*\"/></policy>"

    static func withDaemon(
        _ daemon: String, polling: Bool = false, configuration: String = "",
        _ body: (Subscriber) throws -> Void
    ) throws {
        let bus = try PrivateBus(policy: everything)
        let process = try start(daemon, bus, polling: polling, configuration)
        let client = try Subscriber(bus)
        try body(client)
        process.kill(SIGTERM)
    }

    static func start(
        _ daemon: String, _ bus: PrivateBus, polling: Bool, _ configuration: String = ""
    ) throws -> Child {
        let file = bus.directory + "/appstated.conf"
        try configuration.write(toFile: file, atomically: true, encoding: .utf8)
        // On a tmpfs if there is one, because /run is one.
        let directory = (access("/dev/shm", W_OK) == 0 ? "/dev/shm" : bus.directory) + "/appstate-bench"
        try? FileManager.default.removeItem(atPath: directory)
        mkdir(directory, 0o700)
        var command = [daemon, "--config", file]
        if polling {
            // Without these capabilities the daemon cannot trace, and polls.
            command = ["setpriv", "--bounding-set=-perfmon,-sys_admin", "--"] + command
        }
        let environment = bus.environment.merging(["RUNTIME_DIRECTORY": directory]) { $1 }
        let process = try Child(command[0], Array(command.dropFirst()), environment: environment)
        try Child("gdbus", ["wait", "--address", bus.address, "--timeout", "30", BusNames.service])
            .waitForExit()
        return process
    }
}

/// A connection that has subscribed to the daemon's signals.
final class Subscriber {
    private let loop: EventLoop
    private let bus: Bus
    private var filter: Slot?
    private var state = ""
    /// The number of applications that were ended to free memory.
    private(set) var reclaimed = 0

    init(_ privateBus: PrivateBus) throws {
        loop = try EventLoop()
        bus = try Bus.open(address: privateBus.address)
        try bus.attach(to: loop)
        filter = try bus.addFilter { [unowned self] message in
            if message.isSignal, message.interface == BusNames.application, message.member == "StateChanged" {
                try? message.skip("s")
                state = (try? message.readString()) ?? ""
                try? message.rewind()
            }
            if message.isSignal, message.member == "ApplicationReclaimed" { reclaimed += 1 }
            return false
        }
        try call(BusNames.root, BusNames.manager, "Subscribe") { _ in }
    }

    @discardableResult
    func call(
        _ path: String, _ interface: String, _ member: String, _ body: (borrowing Message) throws -> Void
    ) throws -> Message {
        let message = try bus.newCall(
            destination: BusNames.service, path: path, interface: interface, member: member)
        try body(message)
        return try bus.call(message)
    }

    @discardableResult
    func register(_ pid: Int32, automatic: Bool = false) throws -> String {
        try call(BusNames.root, BusNames.manager, "Register") { message in
            try message.append("org.example.Bench")
            try message.append(UInt32(pid))
            try message.appendDictionary(automatic ? [("suspension", .string("automatic"))] : [])
        }.readObjectPath()
    }

    func suspend(_ path: String) throws { try call(path, BusNames.application, "Suspend") { _ in } }

    /// Does not wait for the reply, which follows the signals.
    func send(suspend path: String) throws {
        try bus.send(
            bus.newCall(
                destination: BusNames.service, path: path, interface: BusNames.application, member: "Suspend")
        )
    }

    func resume(_ path: String) throws { try call(path, BusNames.application, "Resume") { _ in } }

    func minimize(_ pid: Int32) throws {
        try call(BusNames.root, BusNames.reporter, "SetMinimized") { message in
            try message.append(UInt32(pid))
            try message.append(true)
        }
    }

    /// Does not wait for the reply.
    func send(focus pid: Int32) throws {
        let message = try bus.newCall(
            destination: BusNames.service, path: BusNames.root, interface: BusNames.reporter,
            member: "SetFocus")
        try message.append(UInt32(pid))
        try bus.send(message)
    }

    func get(_ interface: String, _ property: String, of service: String) throws {
        let message = try bus.newCall(
            destination: service, path: BusNames.root, interface: BusNames.properties, member: "Get")
        try message.append(interface)
        try message.append(property)
        _ = try bus.call(message)
    }

    /// Asks the bus for its id.
    func roundTripToBus() throws -> String { try bus.id() }

    /// Handles the messages that have arrived.
    func hear() throws { while try loop.runOnce(timeout: 0) {} }

    func wait(for wanted: String) throws {
        while state != wanted { try loop.runOnce(timeout: nil) }
    }
}
