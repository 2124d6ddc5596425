import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport

/// Measures how long one user's calls wait while another user attacks the daemon in the worst ways that the tests know.
///
/// Each attack is this program again, run by a user without any privileges. The reader's round trips are measured at
/// rest, under each attack alone, and under all of them at once. For comparison, the same user's round trips to the bus
/// and to a bystander are measured as well. The bystander is another service on this bus, which does nothing and which
/// only one of the attacks calls. Every client on a bus with this attacker waits at least as long as the bystander's
/// callers; only the additional time is caused by the daemon.
///
/// The bus, bystander, reader and attacker have equal shares of the processors, as systemd gives them to system.slice
/// and to each user's slice. The daemon, whose unit is beside those slices, has the share that its unit asks for. A
/// user whose programs compute endlessly takes processor time from every other user, with or without the daemon.
extension Bench {
    /// Debian's user `games`, which owns nothing. dbus-daemon rejects a user without a passwd entry.
    private static let attacker: UInt32 = 5
    /// MemoryMax= of the unit, in KiB.
    private static let memoryLimit = 256 << 10

    /// Prints how long other users' calls wait while one user attacks.
    ///
    /// - Parameter only: the attacks to run at once, to find out what they cost. If it is empty, each attack runs
    /// alone, then all of them run at once.
    static func siege(_ daemon: String, only: [Attack] = []) throws {
        guard getuid() == 0, Programs.inPath("setpriv") != nil else {
            print("\nNot measured: the siege, which needs root and setpriv.\n")
            return
        }
        let shares = Shares()
        if shares == nil {
            print("\nWithout shares of the processors: no cgroup can be made.\n")
        }
        let before = processorTime()
        defer { reportSteal(since: before) }
        shares?.enter(.bus)
        let bus = try PrivateBus(policy: everything)
        shares?.enter(.daemon)
        let process = try start(daemon, bus, polling: false)
        shares?.enter(.bystander)
        let bystander = try Child(try own(), ["--bystander", bus.address])
        try bystander.waitForLine(containing: "begun")
        shares?.enter(.reader)
        let reader = try Reader(bus)
        // So many are the worst case for calls that list them. They exist before the values at rest are measured.
        let sleepers = try (0..<500).map { _ in try Child("sleep", ["1000"]) }
        for sleeper in sleepers { try reader.subscriber.register(sleeper.pid) }

        // Lets the daemon finish the work of the registrations first.
        _ = try reader.read(for: seconds(3))
        let quiet = try reader.read(for: seconds(10))
        report("baseline: at rest", quiet, nil)
        func besiege(_ part: String, _ attacks: [Attack], for seconds: Int) throws {
            let attackers = try attacks.map { try begin($0, bus, shares) }
            report(part, try reader.read(for: seconds), quiet)
            end(attackers)
        }
        if only.isEmpty {
            for attack in Attack.allCases { try besiege(attack.rawValue, [attack], for: seconds(10)) }
            try besiege("all at once", Attack.ofTheDaemon, for: seconds(60))
        } else {
            try besiege(only.map(\.rawValue).joined(separator: ", "), only, for: seconds(10))
        }
        try report(process)
        withExtendedLifetime((sleepers, bystander)) {}
    }

    private static func report(_ part: String, _ times: Reader.Times, _ quiet: Reader.Times?) {
        row("\(part): Get of a property of the daemon", times.daemon, quiet?.daemon, tail: true)
        row("\(part): Get of a property of the bystander", times.bystander, quiet?.bystander, tail: true)
        row(
            "\(part): a new connection's Get of the daemon", times.newToDaemon, quiet?.newToDaemon,
            tail: true)
        row(
            "\(part): a new connection's Get of the bystander", times.newToBystander, quiet?.newToBystander,
            tail: true)
        row("\(part): a round trip to the bus", times.bus, quiet?.bus, tail: true)
    }

    /// The path of this program. An attacker is started by setpriv(1), where /proc/self/exe would name setpriv.
    private static func own() throws -> String {
        try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
    }

    /// APPSTATED_SIEGE_SECONDS shortens each part, to try the program out.
    private static func seconds(_ usual: Int) -> Int {
        ProcessInfo.processInfo.environment["APPSTATED_SIEGE_SECONDS"].flatMap { Int($0) } ?? usual
    }

    private static func begin(_ attack: Attack, _ bus: PrivateBus, _ shares: Shares?) throws -> Child {
        shares?.enter(.attacker)
        defer { shares?.enter(.reader) }
        let child = try Child(try own(), ["--attack", attack.rawValue, bus.address], uid: attacker)
        try child.waitForLine(containing: "begun")
        return child
    }

    private static func end(_ attackers: [Child]) {
        for attacker in attackers { attacker.kill(SIGKILL) }
        // All processes of this user are leftovers of the attacks.
        _ = try? Child("pkill", ["-KILL", "-u", "\(attacker)"]).waitForExit()
    }

    private static func report(_ process: Child) throws {
        let status = try String(contentsOfFile: "/proc/\(process.pid)/status", encoding: .utf8)
        func kibibytes(_ key: String) -> Int? {
            status.split(separator: "\n").first { $0.hasPrefix(key + ":") }
                .flatMap { Int($0.filter(\.isNumber)) }
        }
        guard let peak = kibibytes("VmHWM"), let now = kibibytes("VmRSS") else {
            throw TestFailure("the daemon has ended")
        }
        print("\n| The daemon afterwards | KiB | of the unit's MemoryMax |\n| --- | --- | --- |")
        print("| resident now | \(now) | \(now * 100 / memoryLimit) % |")
        print("| resident at most | \(peak) | \(peak * 100 / memoryLimit) % |\n")
    }

    /// Prints the share of processor time that a virtual machine's host took since the siege began. All figures above
    /// include it.
    private static func reportSteal(since before: (stolen: Int, all: Int)?) {
        guard let before, let after = processorTime(), after.all > before.all else { return }
        let share = (after.stolen - before.stolen) * 100 / (after.all - before.all)
        print("The host took \(share) % of the processor time during the run (steal, proc_stat(5)).\n")
    }

    private static func processorTime() -> (stolen: Int, all: Int)? {
        guard let stat = try? String(contentsOfFile: "/proc/stat", encoding: .utf8),
            let line = stat.split(separator: "\n").first
        else { return nil }
        let times = line.split(separator: " ").dropFirst().prefix(8).compactMap { Int($0) }
        return times.count == 8 ? (times[7], times.reduce(0, +)) : nil
    }
}

/// A cgroup for each party. All have the same weight except the daemon, which has the weight of its unit.
private final class Shares {
    enum Party: String, CaseIterable {
        case bus
        case daemon
        case bystander
        case reader
        case attacker

        /// The weight as in `CPUWeight=` of systemd.resource-control(5), whose default is 100.
        var weight: Int { self == .daemon ? 500 : 100 }
    }

    private let root: String

    /// Nil if this machine has no hierarchy with the cpu controller in which cgroups can be created.
    init?() {
        let roots = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"]
        guard let root = roots.first(where: { access($0 + "/cgroup.procs", W_OK) == 0 }) else { return nil }
        self.root = root
        for party in Party.allCases {
            mkdir(directory(party), 0o755)
            guard setWeight(of: party) else {
                remove()
                return nil
            }
        }
    }

    private func setWeight(of party: Party) -> Bool {
        // 1,024 shares correspond to a weight of 100.
        let files = ["cpu.weight": party.weight, "cpu.shares": party.weight * 1_024 / 100]
        return files.contains { file, value in
            let path = directory(party) + "/" + file
            return access(path, W_OK) == 0
                && (try? "\(value)".write(toFile: path, atomically: false, encoding: .utf8)) != nil
        }
    }

    deinit {
        try? "0".write(toFile: root + "/cgroup.procs", atomically: false, encoding: .utf8)
        remove()
    }

    /// Processes that are started from now on belong to this party.
    func enter(_ party: Party) {
        try? "0".write(toFile: directory(party) + "/cgroup.procs", atomically: false, encoding: .utf8)
    }

    private func directory(_ party: Party) -> String { "\(root)/appstate-siege-\(party.rawValue)" }

    private func remove() {
        for party in Party.allCases { rmdir(directory(party)) }
    }
}

/// Reads from the daemon, the bystander and the bus in turn, one call after the other.
private final class Reader {
    struct Times {
        var daemon: [UInt64] = []
        var bystander: [UInt64] = []
        var bus: [UInt64] = []
        /// The first call of a new connection.
        var newToDaemon: [UInt64] = []
        var newToBystander: [UInt64] = []
    }

    let subscriber: Subscriber
    private let address: String

    init(_ bus: PrivateBus) throws {
        subscriber = try Subscriber(bus)
        address = bus.address
    }

    func read(for seconds: Int) throws -> Times {
        var times = Times()
        var round = 0
        let end = Bench.now + UInt64(seconds) * 1_000_000_000
        while Bench.now < end {
            // The first call after the pause waits longest, so they take turns.
            round += 1
            for part in round..<round + 3 {
                switch part % 3 {
                case 0:
                    times.daemon.append(
                        try time {
                            try subscriber.get(BusNames.manager, "MemoryPressure", of: BusNames.service)
                        })
                case 1:
                    times.bystander.append(
                        try time { try subscriber.get(Bystander.name, "Level", of: Bystander.name) })
                default:
                    times.bus.append(try time { _ = try subscriber.roundTripToBus() })
                }
            }
            try subscriber.hear()
            if round % Self.roundsOfNewcomer == 0 {
                times.newToDaemon.append(
                    try firstCall(of: "MemoryPressure", of: BusNames.manager, to: BusNames.service))
                times.newToBystander.append(
                    try firstCall(of: "Level", of: Bystander.name, to: Bystander.name))
            }
            // A client such as a panel asks from time to time, and does not occupy a processor.
            usleep(1_000)
        }
        return times
    }

    /// The time of a new connection's first call, as busctl makes it, in nanoseconds. The time until the bus accepts
    /// the connection does not count.
    private func firstCall(of property: String, of interface: String, to service: String) throws -> UInt64 {
        let bus = try Bus.open(address: address)
        _ = bus.uniqueName
        let call = try bus.newCall(
            destination: service, path: BusNames.root, interface: BusNames.properties, member: "Get")
        try call.append(interface)
        try call.append(property)
        return try time { _ = try bus.call(call) }
    }

    private static let roundsOfNewcomer = 5

    private func time(_ call: () throws -> Void) rethrows -> UInt64 {
        let begin = Bench.now
        try call()
        return Bench.now - begin
    }
}

/// A service with one property, which is read like the daemon's.
enum Bystander {
    static let name = "org.example.Bystander"

    static func run(_ address: String) throws -> Never {
        let loop = try EventLoop()
        let bus = try Bus.open(address: address)
        let interface = Interface(
            name, properties: [Property("Level", "s") { message, _ in try message.append("normal") }])
        let slot = try bus.add(interface, at: BusNames.root)
        try bus.attach(to: loop)
        try bus.requestName(name)
        FileHandle.standardOutput.write(Data("begun\n".utf8))
        while true { try withExtendedLifetime(slot) { _ = try loop.runOnce(timeout: nil) } }
    }
}

/// The attacks of one user on the daemon.
enum Attack: String, CaseIterable {
    /// Sends SIGCONT to itself, as fast as it can.
    case signals
    /// Registers with launch options as deep and as large as the daemon accepts, and lists all objects repeatedly.
    case nesting
    /// Has 5,000 open files and 200 locks that other processes wait for, and asks whether it may be suspended.
    case locks
    /// Suspends and resumes an application of 1,000 processes.
    case processes
    /// Gives the focus to an application with 1,000 threads, and minimizes it.
    case threads
    /// Reports as many windows as one message holds, of as many processes as possible.
    case windows
    /// Registers as many applications as one user may have, and connects short-lived reporters of their windows.
    case reporters
    /// Registers and unregisters, and makes every call that returns information.
    case calls
    /// Makes calls that want no reply, whose number no bus limits, from new connections that the daemon must look up.
    case unanswered
    /// Opens connections that make one call, want no reply, and close.
    case strangers
    /// Sends signals to every connection of the daemon, as any client may.
    case connections
    /// Does the same as `unanswered` to the bystander. This shows the effect of the bus alone.
    case bystander

    static let ofTheDaemon = allCases.filter { $0 != .bystander }

    func run(_ address: String) throws -> Never {
        let besieger = try Besieger(address)
        switch self {
        case .signals: try besieger.signals()
        case .nesting: try besieger.nesting()
        case .locks: try besieger.locks()
        case .processes: try besieger.processes()
        case .threads: try besieger.threads()
        case .windows: try besieger.windows()
        case .reporters: try besieger.reporters()
        case .calls: try besieger.calls()
        case .unanswered: try besieger.unanswered(to: BusNames.service)
        case .strangers: try besieger.strangers()
        case .connections: try besieger.connections()
        case .bystander: try besieger.unanswered(to: Bystander.name)
        }
    }
}

/// A connection of the attacker. It continues when calls are refused, since it expects that.
private final class Besieger {
    private let address: String
    private let bus: Bus

    init(_ address: String) throws {
        self.address = address
        bus = try Bus.open(address: address)
    }

    @discardableResult
    private func call(
        _ path: String, _ interface: String, _ member: String,
        _ body: (borrowing Message) throws -> Void = { _ in }
    ) -> Message? {
        do {
            let message = try bus.newCall(
                destination: BusNames.service, path: path, interface: interface, member: member)
            try body(message)
            return try bus.call(message)
        } catch {
            // Errors are ignored, but the attacker ends when the bus has gone away.
            if kill(getppid(), 0) != 0 && errno == ESRCH { exit(0) }
            return nil
        }
    }

    private func register(_ pid: Int32, _ options: [(String, Variant)] = []) -> String? {
        let answer = call(BusNames.root, BusNames.manager, "Register") {
            try $0.append("org.example.Besieger")
            try $0.append(UInt32(pid))
            try $0.appendDictionary(options)
        }
        return try? answer?.readObjectPath()
    }

    private func sleepers(_ count: Int) throws -> [Int32] {
        // The shell that starts them stays: as its children they belong to its application.
        let shell = try Child(
            "sh", ["-c", "i=0; while [ $i -lt \(count) ]; do sleep 1000 & i=$((i+1)); done; echo all; wait"])
        try shell.waitForLine(containing: "all")
        kept.append(shell)
        let path = "/proc/\(shell.pid)/task/\(shell.pid)/children"
        let children = try String(contentsOfFile: path, encoding: .utf8)
            .split(separator: " ").compactMap { Int32($0) }
        return [shell.pid] + children
    }

    private var kept: [Child] = []

    /// Reports that the preparation is complete and the attack begins.
    private func begin() {
        FileHandle.standardOutput.write(Data("begun\n".utf8))
    }

    func signals() throws -> Never {
        _ = register(0)
        begin()
        while true { kill(getpid(), SIGCONT) }
    }

    func nesting() throws -> Never {
        let pids = try sleepers(600)
        var depth = 1
        begin()
        while true {
            for pid in pids.dropFirst() {
                var value = Variant.string(String(repeating: "x", count: 32 << 10))
                for _ in 0..<depth { value = .dictionary(["deeper": value]) }
                _ = register(pid, [("launch-options", .dictionary(["deeper": value]))])
                depth = depth % 24 + 1
                call(BusNames.root, BusNames.objectManager, "GetManagedObjects")
            }
            for pid in pids.dropFirst() {
                let found = call(BusNames.root, BusNames.manager, "GetApplicationByPID") {
                    try $0.append(UInt32(pid))
                }
                if let path = try? found?.readObjectPath() { call(path, BusNames.application, "Unregister") }
            }
        }
    }

    func locks() throws -> Never {
        let directory = NSTemporaryDirectory() + "appstate-siege-\(getpid())"
        mkdir(directory, 0o700)
        var limit = rlimit(rlim_cur: 8_192, rlim_max: 8_192)
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        for number in 0..<200 {
            let file = open("\(directory)/\(number)", O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
            flock(file, LOCK_EX)
            kept.append(try Child("flock", ["\(directory)/\(number)", "true"]))
        }
        for _ in 0..<5_000 { _ = open("/dev/null", O_RDONLY | O_CLOEXEC) }
        guard let path = register(0) else { exit(1) }
        begin()
        while true {
            call(path, BusNames.application, "ListObjections")
            call(path, BusNames.application, "Explain")
        }
    }

    func processes() throws -> Never {
        let pids = try sleepers(1_000)
        guard let path = register(pids[0]) else { exit(1) }
        begin()
        while true {
            call(path, BusNames.application, "Suspend")
            call(path, BusNames.properties, "Get") {
                try $0.append(BusNames.application)
                try $0.append("MemoryUsage")
            }
            call(path, BusNames.application, "Resume")
        }
    }

    func threads() throws -> Never {
        for _ in 0..<1_000 {
            let thread = Thread { while true { sleep(1_000) } }
            thread.stackSize = 64 << 10
            thread.start()
        }
        guard register(0) != nil else { exit(1) }
        begin()
        while true {
            for minimized in [true, false] {
                call(BusNames.root, BusNames.reporter, "SetMinimized") {
                    try $0.append(UInt32(getpid()))
                    try $0.append(minimized)
                }
            }
            call(BusNames.root, BusNames.reporter, "SetFocus") { try $0.append(UInt32(getpid())) }
        }
    }

    func windows() throws -> Never {
        let pids = try sleepers(1_000)
        _ = register(pids[0])
        begin()
        while true {
            for pid in pids.prefix(300) {
                call(BusNames.root, BusNames.reporter, "SetFocus") { try $0.append(UInt32(pid)) }
                call(BusNames.root, BusNames.reporter, "SetMinimized") {
                    try $0.append(UInt32(pid))
                    try $0.append(true)
                }
            }
            for count in [256, 1_000, 4_000] {
                call(BusNames.root, BusNames.reporter, "ReplaceWindows") { message in
                    try message.withContainer(.array, "(tua{sv})") {
                        for number in 0..<count {
                            try message.withContainer(.struct, "tua{sv}") {
                                try message.append(UInt64(number))
                                try message.append(UInt32(pids[number % pids.count]))
                                try message.appendDictionary([("visible", .bool(number % 2 == 0))])
                            }
                        }
                    }
                }
            }
        }
    }

    func reporters() throws -> Never {
        let pids = try sleepers(1_023)
        // Beside other attacks of this user the registrations take minutes, so they count as part of the attack.
        begin()
        for pid in pids { _ = register(pid) }
        while true {
            let reporter = try Besieger(address)
            reporter.call(BusNames.root, BusNames.reporter, "UpdateWindow") {
                try $0.append(UInt64(1))
                try $0.append(UInt32(pids[0]))
                try $0.appendDictionary([("visible", .bool(true))])
            }
        }
    }

    func calls() throws -> Never {
        let pids = try sleepers(200)
        begin()
        while true {
            let paths = pids.compactMap { register($0) }
            call(BusNames.root, BusNames.manager, "ListApplications")
            call(BusNames.root, BusNames.objectManager, "GetManagedObjects")
            call(BusNames.applications, "org.freedesktop.DBus.Introspectable", "Introspect")
            for path in paths {
                call(path, BusNames.properties, "GetAll") { try $0.append(BusNames.application) }
                call(path, BusNames.application, "Explain")
                call(path, BusNames.application, "Unregister")
            }
        }
    }

    func strangers() throws -> Never {
        begin()
        while true {
            let stranger = try Bus.open(address: address)
            try stranger.send(
                try stranger.newCall(
                    destination: BusNames.service, path: BusNames.root,
                    interface: "org.freedesktop.DBus.Peer", member: "Ping"))
            try stranger.flush()
        }
    }

    func connections() throws -> Never {
        let daemon = try process(of: BusNames.service)
        let names = try bus.call(try bus.newDriverCall("ListNames")).readStrings()
        let targets = names.filter { $0.hasPrefix(":") && (try? process(of: $0)) == daemon }
        let payload = String(repeating: "x", count: 1_000)
        begin()
        while true {
            for target in targets {
                for _ in 0..<500 {
                    let signal = try bus.newSignal(
                        path: BusNames.root, interface: BusNames.reporter, member: "Nonsense", to: target)
                    try signal.append(payload)
                    try bus.send(signal)
                }
            }
            try bus.flush()
        }
    }

    private func process(of name: String) throws -> UInt32 {
        let question = try bus.newDriverCall("GetConnectionUnixProcessID")
        try question.append(name)
        return try bus.call(question).readUInt32()
    }

    func unanswered(to service: String) throws -> Never {
        begin()
        while true {
            let stranger = try Bus.open(address: address)
            for bus in [stranger, bus] {
                for _ in 0..<500 {
                    let message = try bus.newCall(
                        destination: service, path: BusNames.root, interface: BusNames.reporter,
                        member: "ReportDemand")
                    try message.append(UInt32(0))
                    try message.append(String(repeating: "x", count: 1_000))
                    try message.append(UInt32(0))
                    try bus.send(message)
                }
                try bus.flush()
            }
        }
    }
}
