import AppStateContract
import Glibc
import Linux
import Systemd
import TestSupport
import Testing

@testable import AppStateBus
@testable import Daemon

/// Answers that no client reads: dbus-daemon keeps at most 127 MiB of the daemon's, for all readers together.
@Suite("Unread answers", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct UnreadAnswersTests {
    private static let size = 1 << 20

    /// A connection that has saved a megabyte of state.
    private func hoarder(_ daemon: TestDaemon) throws -> (client: Client, path: String) {
        let client = try Client(daemon.bus)
        let path = try client.register("org.example.Hoarder", getpid())
        try client.application(path, "SaveState") {
            try $0.append(bytes: [UInt8](repeating: 7, count: Self.size))
        }
        return (client, path)
    }

    @Test(
        "a user who loads a megabyte 300 times and reads none of it does not block answers to others",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func unread() throws {
        let daemon = try TestDaemon(keeps: true)
        let (client, path) = try hoarder(daemon)
        let other = try App(daemon.bus, uid: App.nobody)
        let otherPath = try other.register("org.example.Other")
        var answers: [String] = []
        var slots: [Slot] = []
        for _ in 0..<300 {
            let load = try client.bus.newCall(
                destination: BusNames.service, path: path, interface: BusNames.application,
                member: "LoadState")
            slots.append(
                try client.bus.callAsync(load, timeout: .max) {
                    answers.append($0.error?.name ?? ((try? $0.readBytes().count) ?? 0).description)
                })
            try client.bus.flush()
            try other.application(otherPath, "SaveState ay:theirs")
        }
        #expect(try other.application(otherPath, "LoadState") == "theirs")

        // The client reads at last, and is served as before.
        try client.wait("the refusals") { answers.contains(ErrorName.limitsExceeded.rawValue) }
        var last = ""
        try client.wait("an answer") {
            last =
                (try? client.call(path, BusNames.application, "LoadState").readBytes().count)?.description
                ?? ""
            return last == "\(Self.size)"
        }
        withExtendedLifetime(slots) {}
    }

    @Test(
        "a user who reads a long property 3,000 times and takes no answer does not block answers to others",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func unreadProperty() throws {
        let daemon = try TestDaemon()
        let client = try Client(daemon.bus)
        let note = Variant.string(String(repeating: "x", count: 60 << 10))
        let path = try client.register(
            "org.example.Hoarder", getpid(), [("launch-options", .dictionary(["note": note]))])
        let other = try App(daemon.bus, uid: App.nobody)
        let otherPath = try other.register("org.example.Other")
        var errors: Set<String> = []
        var slots: [Slot] = []
        for number in 0..<3_000 {
            let get = try client.bus.newCall(
                destination: BusNames.service, path: path, interface: BusNames.properties, member: "Get")
            try get.append(BusNames.application)
            try get.append("LaunchOptions")
            slots.append(
                try client.bus.callAsync(get, timeout: .max) {
                    if let error = $0.error { errors.insert(error.name) }
                })
            try client.bus.flush()
            if number.isMultiple(of: 100) { try other.application(otherPath, "BackgroundTimeRemaining") }
        }
        try other.application(otherPath, "BackgroundTimeRemaining")
        // The client reads at last.
        try client.wait("the refusals") { errors == [ErrorName.limitsExceeded.rawValue] }
        withExtendedLifetime(slots) {}
    }

    @Test(
        "a user who loads state as a file 1,000 times and takes no answer does not block answers to others",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func unreadFiles() throws {
        let daemon = try TestDaemon(keeps: true)
        let (client, path) = try hoarder(daemon)
        let other = try App(daemon.bus, uid: App.nobody)
        let otherPath = try other.register("org.example.Other")
        var errors: Set<String> = []
        var slots: [Slot] = []
        for _ in 0..<1_000 {
            let load = try client.bus.newCall(
                destination: BusNames.service, path: path, interface: BusNames.application,
                member: "LoadStateFile")
            slots.append(
                try client.bus.callAsync(load, timeout: .max) {
                    if let error = $0.error { errors.insert(error.name) }
                })
            try client.bus.flush()
            try other.application(otherPath, "BackgroundTimeRemaining")
        }
        // The client reads at last.
        try client.wait("the refusals") { errors == [ErrorName.limitsExceeded.rawValue] }
        withExtendedLifetime(slots) {}
    }

    @Test(
        "a long answer waits until the bus has said how much is unread, and is refused if that is too much",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func longAnswer() throws {
        let privateBus = try PrivateBus()
        let service = try Bus.open(address: privateBus.address)
        let inquiries = try Bus.open(address: privateBus.address)
        let journal = Journal(identifier: "test")
        let connections = Connections(bus: service, inquiries: inquiries, proc: Proc(), journal: journal)
        let unread = UnreadAnswers(inquiries: inquiries, share: WorkShare(), journal: journal)
        let client = try Client(privateBus)
        let connection = try #require(try connections.connection(named: client.bus.uniqueName))
        func isAdmitted() throws -> Bool? {
            var answer: Bool?
            _ = try eventually {
                while try inquiries.process() {}
                answer = unread.admitsLongAnswer(to: connection.user)
                return answer != nil
            }
            return answer
        }
        #expect(unread.admitsLongAnswer(to: connection.user) == true)
        // It has read everything, as the bus says.
        unread.chargeAnswer(of: 10 << 20, to: connection)
        #expect(unread.admitsLongAnswer(to: connection.user) == nil)
        #expect(try isAdmitted() == true)

        for _ in 0..<100 {
            let signal = try service.newSignal(
                path: BusNames.root, interface: BusNames.manager, member: "Long", to: connection.name)
            try signal.append(bytes: [UInt8](repeating: 7, count: 100 << 10))
            try service.send(signal)
        }
        // The bus answers this after it has forwarded the signals.
        _ = try service.id()
        unread.chargeAnswer(of: 10 << 20, to: connection)
        #expect(unread.admitsLongAnswer(to: connection.user) == nil)
        let verdict = try isAdmitted()
        #expect(verdict == false)
    }

    /// Connections of several users. The bus does not know them, so their estimates stay as they are.
    private final class Bench {
        let unread: UnreadAnswers
        private let privateBus: PrivateBus

        init() throws {
            privateBus = try PrivateBus()
            unread = UnreadAnswers(
                inquiries: try Bus.open(address: privateBus.address), share: WorkShare(),
                journal: Journal(identifier: "test"))
        }

        func connection(of user: UInt32) throws -> Connection {
            var credentials = Credentials(
                uid: user, pid: getpid(), securityLabel: nil, pidDescriptor: nil)
            return try Connection(name: ":9.\(user)", credentials: &credentials, proc: Proc())
        }

        /// These users get answers of this size, and do not read them.
        func fill(_ users: ClosedRange<UInt32>, _ bytes: Int) throws {
            for user in users { unread.chargeAnswer(of: bytes, to: try connection(of: user)) }
        }
    }

    @Test("what all users together have not read is limited, and each user may always have some")
    func allUsers() throws {
        let bench = try Bench()
        let unread = bench.unread
        let reader = try bench.connection(of: 1_000)
        try bench.fill(1_001...1_003, 7 << 20)
        unread.chargeAnswer(of: 512 << 10, to: reader)
        let isAdmitted = unread.admit(1_024, from: reader) == .admitted
        #expect(isAdmitted)
        try unread.checkExpected(of: 1_000)

        try bench.fill(1_004...1_004, 7 << 20)
        let isRefused = unread.admit(1_024, from: reader) == .refused
        #expect(isRefused)
        #expect(throws: MethodError.self) { try unread.checkExpected(of: 1_000) }
        let other = try bench.connection(of: 1_010)
        let isOtherAdmitted = unread.admit(1_024, from: other) == .admitted
        #expect(isOtherAdmitted)
        try unread.checkExpected(of: 1_010)

        try bench.fill(1_005...1_006, 7 << 20)
        let isIgnored = unread.admit(1_024, from: reader) == .ignored
        #expect(isIgnored)

        for user in 1_002...1_006 { unread.departed(":9.\(user)") }
        let isAdmittedAgain = unread.admit(1_024, from: reader) == .admitted
        #expect(isAdmittedAgain)
    }

    @Test("descriptors that wait for a slow disk count, although the bus knows nothing of them yet")
    func comingDescriptors() throws {
        let bench = try Bench()
        let unread = bench.unread
        let reader = try bench.connection(of: 1_000)
        let most = (8 << 20) / UnreadAnswers.sizeOfDescriptor
        for _ in 0..<most {
            try unread.checkExpected(of: 1_000)
            unread.expectDescriptor(to: reader)
        }
        #expect(throws: MethodError.self) { try unread.checkExpected(of: 1_000) }
        for _ in 0..<most { unread.sentAnswer(of: UnreadAnswers.sizeOfDescriptor, to: reader) }
        #expect(throws: MethodError.self) { try unread.checkExpected(of: 1_000) }
        let isRefused = unread.admit(1_024, from: reader) == .refused
        #expect(isRefused)
    }

    @Test("one user cannot use up what all users have together, whatever others have sent to that user")
    func oneUser() throws {
        let bench = try Bench()
        let reader = try bench.connection(of: 1_000)
        bench.unread.chargeAnswer(of: 1 << 20, to: reader)
        try bench.fill(1_001...1_001, 100 << 20)
        let isAdmitted = bench.unread.admit(1_024, from: reader) == .admitted
        #expect(isAdmitted)
    }

    @Test("a client that reads may load as often as it likes, also where it answers no ping")
    func read() throws {
        let daemon = try TestDaemon(keeps: true)
        let (client, path) = try hoarder(daemon)
        for _ in 0..<40 {
            #expect(try client.call(path, BusNames.application, "LoadState").readBytes().count == Self.size)
        }
    }

    @Test("a client that leaves while the bus is asked about it does not change the limit")
    func leaving() throws {
        let daemon = try TestDaemon(keeps: true)
        let (client, path) = try hoarder(daemon)
        for _ in 0..<20 {
            let leaver = try Client(daemon.bus)
            // The daemon knows the client after this, so its calls are charged to it.
            _ = errorName { try leaver.call(BusNames.root, BusNames.manager, "ListApplications") }
            for _ in 0..<300 {
                let call = try leaver.bus.newCall(
                    destination: BusNames.service, path: BusNames.root,
                    interface: "org.freedesktop.DBus.Introspectable", member: "Introspect")
                _ = try leaver.bus.callAsync(call, timeout: .max) { _ in }
            }
            try leaver.bus.flush()
        }
        var errors: Set<String> = []
        var slots: [Slot] = []
        let other = try Client(daemon.bus)
        // The daemon may learn later that clients have left. Until then, it refuses to load one more megabyte. The
        // user's other calls are refused once enough is loaded, and not answered any more once far too much is.
        try other.wait("a refusal") {
            let load = try client.bus.newCall(
                destination: BusNames.service, path: path, interface: BusNames.application,
                member: "LoadState")
            slots.append(try client.bus.callAsync(load, timeout: .max) { _ in })
            try client.bus.flush()
            let list = try other.bus.newCall(
                destination: BusNames.service, path: BusNames.root, interface: BusNames.manager,
                member: "ListApplications")
            slots.append(
                try other.bus.callAsync(list, timeout: .max) {
                    if let error = $0.error { errors.insert(error.name) }
                })
            return errors == [ErrorName.limitsExceeded.rawValue]
        }
        withExtendedLifetime(slots) {}
    }
}
