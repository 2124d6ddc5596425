import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// A Flatpak calls through xdg-dbus-proxy, which is outside of its sandbox: to the bus, the proxy is the caller.
@Suite(
    "Flatpaks behind their proxy",
    .enabled(if: App.canBeOthers, App.whatOthersNeed),
    .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)),
    .enabled(if: Programs.inPath("xdg-dbus-proxy") != nil, "needs xdg-dbus-proxy"),
    .enabled(if: Scripts.haveDBus, "needs python3-dbus and python3-gi"))
struct FlatpakTests {
    /// An instance as flatpak(1) makes it: the proxy and the sandbox in a unit of their own.
    private final class Instance {
        let unit: TestCgroup
        let proxy: Child
        /// unshare(1), which made the sandbox as bwrap(1) does.
        let outer: Child
        /// The process in the sandbox, by its pid outside.
        let inner: Int32
        /// The proxy ends when this is closed.
        private let life: PipeEnds
        private let input: PipeEnds
        private var asked = 0

        init(_ daemon: TestDaemon) throws {
            guard let base = TestCgroup.base else { throw TestFailure("no cgroup") }
            let number = UUID().uuidString
            unit = try TestCgroup("app-flatpak-org.example.App-\(number).scope", below: base)
            life = try PipeEnds()
            input = try PipeEnds()
            let socket = "\(daemon.bus.directory)/\(number)"
            proxy = try Child(
                "xdg-dbus-proxy",
                ["--fd=3", daemon.bus.address, socket, "--filter", "--talk=\(BusNames.service)"],
                descriptors: [3: life.write])
            var byte: UInt8 = 0
            guard read(life.read, &byte, 1) == 1 else { throw TestFailure("the proxy is not ready") }
            try unit.take(proxy.pid)
            outer = try Child(
                "unshare",
                [
                    "--pid", "--fork", "--kill-child", "--", Scripts.python,
                    "\(Programs.root)/Tests/DaemonTests/Scripts/flatpak.py",
                ], environment: ["DBUS_SYSTEM_BUS_ADDRESS": "unix:path=\(socket)"],
                descriptors: [STDIN_FILENO: input.read])
            try outer.waitForLine(containing: "#0 ok")
            guard let inner = try Proc().children(of: outer.pid).first else {
                throw TestFailure("no sandbox")
            }
            self.inner = inner
            for pid in [outer.pid, inner] { try unit.take(pid) }
        }

        /// Returns the answer. A D-Bus error is thrown, with its message.
        @discardableResult
        func ask(_ command: String) throws -> String {
            asked += 1
            let line = Array("\(command)\n".utf8)
            guard write(input.write, line, line.count) == line.count else { throw TestFailure("no input") }
            let words = try outer.waitForLine(containing: "#\(asked) ")
                .split(separator: " ", maxSplits: 3).map(String.init)
            if words[1] == "ok" { return words.dropFirst(2).joined(separator: " ") }
            throw BusFailure(
                operation: "ask", subject: command, errno: EIO, name: words[2], message: words.last)
        }

        @discardableResult
        func application(_ path: String, _ words: String) throws -> String {
            try ask("call \(path) \(BusNames.application) \(words)")
        }

        func list() throws -> String {
            try ask("call \(BusNames.root) \(BusNames.manager) ListApplications")
        }

        func register() throws -> String { try ask("process") }
    }

    @Test("pid 0 is refused with a hint at RegisterProcess, and the proxy's pid is refused as well")
    func proxyIsNoApplication() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let instance = try Instance(daemon)
        do {
            try instance.ask("zero")
            Issue.record("Register with pid 0 was not refused")
        } catch let failure as BusFailure {
            #expect(failure.name == ErrorName.invalidArgs.rawValue)
            #expect(failure.message?.contains("RegisterProcess") == true)
        }
        let proxy = instance.proxy.pid
        #expect(errorName { try instance.ask("number \(proxy)") } == ErrorName.accessDenied.rawValue)
        #expect(try client.list() == [])
    }

    @Test("a Flatpak registers itself by pidfd, and is its own delegate through the proxy")
    func byDescriptor() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let instance = try Instance(daemon)
        let path = try instance.register()
        #expect(try client.property(path, "PID") == .uint32(UInt32(instance.inner)))
        #expect(try client.state(path) == "not-running")
        try instance.application(path, "FinishLaunching")
        #expect(try client.state(path) == "inactive")
        #expect(try client.property(path, "Suspension") == .string("automatic"))
        let task = try instance.application(path, "BeginBackgroundTask s:task")
        try instance.application(path, "EndBackgroundTask t:\(task)")
        try instance.application(path, "BecomeDelegate")
        try instance.ask("call \(path) \(BusNames.properties) GetAll s:")
        #expect(try instance.list() == path)
        try instance.application(path, "Explain")
        #expect(errorName { try instance.application(path, "Suspend") } == ErrorName.accessDenied.rawValue)
        try instance.application(path, "Unregister")
        #expect(try client.list() == [])
    }

    @Test(
        "the daemon knows whose connection it is after a restart, and if the connection has registered nothing"
    )
    func sender() throws {
        let daemon = try TestDaemon()
        let instance = try Instance(daemon)
        let path = try instance.register()
        try instance.application(path, "FinishLaunching")
        func senders() throws -> [String] {
            let client = try daemon.subscriber()
            try instance.application(path, "SendMessage s:hi {}")
            try client.settle()
            return client.signals(of: path).filter { $0.member == "MessageReceived" }.map { $0.arguments[0] }
        }
        #expect(try senders() == ["org.example.App"])
        try daemon.end(SIGKILL)
        try daemon.start()
        #expect(try senders() == ["org.example.App"], "it is the delegate")
        try instance.ask("reconnect")
        #expect(try senders() == ["org.example.App"], "it is the only application of the instance")
        try instance.application(path, "BecomeDelegate")
        #expect(try senders() == ["org.example.App"])
    }

    @Test("the end of the application ends its whole instance")
    func terminate() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let instance = try Instance(daemon)
        let path = try instance.register()
        try client.terminate(path, force: true)
        #expect(try client.waitForRemoval(of: path) == "force-quit")
        #expect(try instance.proxy.waitForExit() == .signalled(SIGKILL))
    }

    @Test("an instance cannot act on another instance's application, nor on one outside of all instances")
    func others() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let first = try Instance(daemon)
        let second = try Instance(daemon)
        let outside = try Child("sleep", ["1000"])
        let paths = [try first.register(), try client.register("org.example.Outside", outside.pid)]
        let missing = ErrorName.noSuchApplication.rawValue
        for path in paths {
            for member in ["BecomeDelegate", "FinishLaunching", "Explain", "Unregister", "Terminate b:true"] {
                #expect(errorName { try second.application(path, member) } == missing, "\(member)")
            }
        }
        #expect(try second.list() == "")
        let own = try second.register()
        #expect(try second.list() == own)
        #expect(try client.list().count == 3)
    }

    @Test("the process that started the sandbox, in the same unit but outside, is another application")
    func starter() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let instance = try Instance(daemon)
        // Adopted by a client outside.
        let path = try client.register("org.example.App", instance.outer.pid)
        let missing = ErrorName.noSuchApplication.rawValue
        #expect(errorName { try instance.application(path, "BecomeDelegate") } == missing)
        #expect(errorName { try instance.application(path, "Unregister") } == missing)
        let own = try instance.register()
        try instance.application(own, "FinishLaunching")
    }
}
