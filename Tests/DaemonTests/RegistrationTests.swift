import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// Who may register which process, and in which state an application starts.
@Suite("Registration", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct RegistrationTests {
    @Test("a process registered by PID starts in the background, because no window of it is known")
    func byNumber() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Editor", child.pid)
        try client.settle()
        #expect(
            client.story(of: path) == [
                "WillFinishLaunching", "DidFinishLaunching", "not-running→background", "DidEnterBackground",
            ])
        #expect(client.reasons(of: path) == ["launch"])
        #expect(try client.property(path, "ID") == .string("org.example.Editor"))
        #expect(try client.property(path, "PID") == .uint32(UInt32(child.pid)))
        #expect(try client.property(path, "UID") == .uint32(getuid()))
        #expect(try client.property(path, "Suspension") == .string("manual"))
        #expect(try client.property(path, "Reclaimable") == .bool(true))
        #expect(try client.list() == ["\(path) org.example.Editor \(child.pid) \(getuid()) background"])
    }

    @Test("a process can be registered by pidfd")
    func byDescriptor() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let descriptor = try PidFD(pid: child.pid)
        let path = try client.registerProcess("org.example.Editor", descriptor.rawValue)
        #expect(try client.property(path, "PID") == .uint32(UInt32(child.pid)))
        #expect(try client.application(ofPID: child.pid) == path)
        child.kill(SIGKILL)
        try client.waitForRemoval(of: path)
    }

    @Test("a process that registers itself, by 0, by PID or by pidfd, is its own delegate")
    func byItself() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        for how in [
            "Register s:org.example.Actor u:0 {}", "Register s:org.example.Actor u:PID {}",
            "RegisterProcess s:org.example.Actor h:PID {}",
        ] {
            let app = try App(daemon.bus)
            let path = try app.manager(how.replacing("PID", with: "\(app.pid)"))
            #expect(try client.property(path, "PID") == .uint32(UInt32(app.pid)), "\(how)")
            #expect(try client.explain(path)["delegate"] == .string(try app.ask("name")), "\(how)")
            #expect(try client.property(path, "Suspension") == .string("automatic"), "\(how)")
            #expect(try client.state(path) == "not-running", "\(how)")
            try app.application(path, "FinishLaunching")
            #expect(try client.state(path) == "inactive", "\(how)")
        }
    }

    @Test("registration options override the defaults", arguments: ["automatic", "manual", "never"])
    func options(_ suspension: String) throws {
        let daemon = try TestDaemon(
            configuration: "[Application org.example.Player]\nBackgroundModes=audio\n")
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let options: [String: Variant] = [
            "colour": .string("blue"), "nested": .dictionary(["deep": .uint64(7)]),
        ]
        let path = try client.register(
            "org.example.Player", child.pid,
            [
                ("launch-mode", .string("foreground")), ("suspension", .string(suspension)),
                ("reclaimable", .bool(false)), ("background-modes", .strings(["audio", "location"])),
                ("launch-options", .dictionary(options)), ("delegate", .bool(false)),
            ])
        try client.wait(for: path, toBe: "inactive")
        #expect(try client.property(path, "Suspension") == .string(suspension))
        #expect(try client.property(path, "Reclaimable") == .bool(false))
        // A requested mode is not granted by that: only the configuration grants modes.
        #expect(try client.property(path, "BackgroundModes") == .strings(["audio"]))
        // They are for the application alone.
        #expect(try client.property(path, "LaunchOptions") == .dictionary([:]))
    }

    @Test("a process that registers itself without being a delegate is launched at once")
    func withoutDelegate() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register("org.example.Actor", "delegate=b:false")
        try client.wait(for: path, toBe: "inactive")
        #expect(try client.explain(path)["delegate"] == .string(""))
        try app.settle()
        #expect(app.story(of: path) == [])
    }

    // MARK: What was there before

    @Test("an application registered while stopped starts suspended, with a hold for the foreign signal")
    func whileStopped() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        child.kill(SIGSTOP)
        child.waitUntilStopped()
        let path = try client.register(
            "org.example.Editor", child.pid, [("launch-mode", .string("foreground"))])
        #expect(try client.state(path) == "suspended")
        try client.wait(for: path, toBe: "suspended")
        #expect(client.edges(of: path) == ["not-running→background", "background→suspended"])
        // The sender is known only if the kernel reports the signal after the registration.
        #expect(try client.holds(path).map { $0.hasPrefix("signal ") } == [true])
        client.forget()
        child.kill(SIGCONT)
        try client.wait(for: path, toBe: "inactive")
        #expect(client.edges(of: path) == ["suspended→background", "background→inactive"])
        #expect(try client.holds(path) == [])
    }

    @Test("reports about a process that has ended do not apply to the next process with its PID")
    func goneWhileRemembered() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        try client.setFocus(child.pid)
        child.kill(SIGKILL)
        try child.waitForExit()
        let next = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Editor", next.pid)
        #expect(try client.state(path) == "background")
    }
}
