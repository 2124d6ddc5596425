import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing
import Windows

@testable import appstate_session

/// What the owners of GNOME Shell's and the extension's names may send, and what other connections may.
@Suite("GNOME Shell, boundaries", .enabled(if: PrivateBus.isAvailable, "needs dbus-daemon"))
struct GnomeBoundaryTests {
    @Test("after a malformed answer or none, nothing is known until a valid answer arrives")
    func nonsense() throws {
        let shell = try ShellStandIn()
        shell.answer = { try $0.append("nothing") }
        let observer = try shell.watch()
        for answer: (borrowing Message) throws -> Void in [
            { _ in }, { try $0.append(strings: ["a"]) }, { _ in throw MethodError.failed("it throws") },
        ] {
            try shell.run { !observer.takeNotices().isEmpty }
            #expect(observer.isBlind)
            shell.answer = answer
            try shell.change()
        }
        try shell.run { observer.takeNotices().contains { $0.contains("it throws") } }
        shell.answer = ShellStandIn.oneWindow
        try shell.change()
        try shell.run { !observer.isBlind }
        #expect(observer.windows.map(\.number) == [7])
    }

    @Test("another connection owns the extension's name")
    func impostor() throws {
        let shell = try ShellStandIn(hasExtension: false)
        let stranger = try Bus.open(address: shell.bus.address)
        try stranger.requestName(BusNames.shell)
        let observer = try shell.watch()
        #expect(observer.isBlind && !observer.takeNotices().isEmpty)
        try stranger.send(ShellStandIn.signal(from: stranger))
        try stranger.releaseName(BusNames.shell)
        try shell.run { !observer.takeNotices().isEmpty }
        #expect(observer.isBlind && shell.questions == 0)
        try shell.addExtension()
        try shell.run { !observer.isBlind }
    }
}

/// A connection that owns the names of GNOME Shell and its extension, and its answers.
private final class ShellStandIn {
    let bus: PrivateBus
    private(set) var questions = 0
    var answer: (borrowing Message) throws -> Void = { try $0.withContainer(.array, "(tussbbb)") {} }
    private let loop: EventLoop
    private let connection: Bus
    private var slot: Slot?
    private var observer: GnomeObserver?

    static func oneWindow(_ reply: borrowing Message) throws {
        try reply.withContainer(.array, "(tussbbb)") { try append(7, 8, "title", focused: false, to: reply) }
    }

    init(hasExtension: Bool = true) throws {
        bus = try PrivateBus(
            policy: """
                <policy context="default"><allow own="*"/><allow send_type="method_call"/></policy>
                """)
        loop = try EventLoop()
        connection = try Bus.open(address: bus.address)
        try connection.attach(to: loop)
        try connection.requestName("org.gnome.Shell")
        if hasExtension { try addExtension() }
    }

    func addExtension() throws {
        slot = try connection.add(
            Interface(
                BusNames.shell,
                methods: [
                    Method("ListWindows", out: [("windows", "a(tussbbb)")]) { [unowned self] call in
                        questions += 1
                        let answer = answer
                        try call.reply { try answer($0) }
                    }
                ], signals: [Signal("Changed")]), at: BusNames.shellPath)
        try connection.requestName(BusNames.shell)
    }

    func watch() throws -> GnomeObserver {
        let observer = try GnomeObserver(address: bus.address)
        self.observer = observer
        return observer
    }

    func change() throws { try connection.send(Self.signal(from: connection)) }

    func flush() throws { try connection.flush() }

    static func signal(from bus: Bus, to destination: String? = nil) throws -> Message {
        try bus.newSignal(
            path: BusNames.shellPath, interface: BusNames.shell, member: "Changed", to: destination)
    }

    static func append(
        _ number: UInt64, _ pid: UInt32, _ title: String, focused: Bool, to message: borrowing Message
    ) throws {
        try message.withContainer(.struct, "tussbbb") {
            try message.append(number)
            try message.append(pid)
            try message.append("App")
            try message.append(title)
            try message.append(focused)
            try message.append(true)
            try message.append(false)
        }
    }

    func step() throws {
        while try loop.runOnce(timeout: 0) {}
        guard let observer else { return }
        var ready = pollfd(fd: observer.descriptor, events: Int16(POLLIN), revents: 0)
        if poll(&ready, 1, 10) == 1 { try observer.dispatch() }
    }

    func run(until done: () -> Bool) throws {
        let isDone = try eventually {
            if done() { return true }
            try step()
            return done()
        }
        if !isDone { throw TestFailure("the expected state was not reached") }
    }
}
