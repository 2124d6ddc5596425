import AppStateBus
import Foundation
import Glibc
import TestSupport
import Testing

/// `launch` and `open`, with a stand-in for the daemon that records the requests.
@Suite(
    "appstatectl launch and open",
    .enabled(
        if: PrivateBus.isAvailable && Programs.built("appstatectl") != nil,
        "needs dbus-daemon and appstatectl built beside"))
struct LaunchCommandTests {
    /// A bus with this stand-in, and directories with entries and lists of types.
    private final class Desk {
        let bus: PrivateBus
        private let loop: EventLoop
        private let daemon: Bus
        private var object: Slot?
        /// The requests, one line each: the id, then the options.
        private(set) var orders: [String] = []
        /// The answer to requests; nil: a path.
        var refusal: MethodError?
        /// The ids that there are; nil: all.
        var known: Set<String>?

        init() throws {
            bus = try PrivateBus.forDaemon()
            loop = try EventLoop()
            daemon = try Bus.open(address: bus.address)
            for name in ["data", "data/applications", "config", "files"] {
                mkdir("\(bus.directory)/\(name)", 0o755)
            }
            object = try daemon.add(
                Interface(
                    "org.appstate1.Manager",
                    methods: [
                        Method("Launch", in: [("app_id", "s"), ("options", "a{sv}")], out: [("path", "o")]) {
                            [unowned self] call in
                            let id = try call.read { try $0.readString() }
                            let options = try call.read { try $0.readDictionary() }
                            orders.append(
                                ([id]
                                    + options.map { "\($0.key)=\(Self.text($0.value))" }.sorted())
                                    .joined(separator: " "))
                            if let refusal { throw refusal }
                            guard known?.contains(id) != false else {
                                throw MethodError(
                                    "org.appstate1.Error.NoSuchApplication", "there is no desktop entry \(id)"
                                )
                            }
                            let path = "/org/appstate1/application/\(orders.count)"
                            try call.reply { try $0.append(objectPath: path) }
                        }
                    ]), at: "/org/appstate1")
            try daemon.attach(to: loop)
            try daemon.requestName("org.appstate1")
        }

        private static func text(_ value: Variant) -> String {
            switch value {
            case .string(let text): text
            case .strings(let texts): texts.joined(separator: ",")
            default: "\(value)"
            }
        }

        var files: String { bus.directory + "/files" }

        func write(_ file: String, _ text: String) throws {
            try text.write(toFile: "\(bus.directory)/\(file)", atomically: true, encoding: .utf8)
        }

        /// Adds an application and the types that it opens.
        func application(_ id: String, _ types: String) throws {
            try write(
                "data/applications/\(id).desktop",
                "[Desktop Entry]\nType=Application\nName=\(id)\nExec=true %U\nMimeType=\(types)\n")
            let list = bus.directory + "/config/mimeapps.list"
            let known = (try? String(contentsOfFile: list, encoding: .utf8)) ?? "[Default Applications]\n"
            let rows = types.split(separator: ";").map { "\($0)=\(id).desktop\n" }.joined()
            try write("config/mimeapps.list", known + rows)
        }

        func run(
            _ arguments: String..., environment: [String: String?] = [:]
        ) throws -> (output: String, errors: String, status: Child.Ending) {
            orders = []
            let own: [String: String?] = [
                "XDG_DATA_HOME": bus.directory + "/data", "XDG_CONFIG_HOME": bus.directory + "/config",
                "XDG_DATA_DIRS": "/usr/share", "XDG_CONFIG_DIRS": "/nonexistent", "XDG_CURRENT_DESKTOP": nil,
                "XDG_ACTIVATION_TOKEN": nil, "DESKTOP_STARTUP_ID": nil,
                "WAYLAND_DISPLAY": nil,
            ]
            let program = Programs.built("appstatectl") ?? "appstatectl"
            let child = try Child(
                "sh", ["-c", "cd \"$0\" && exec \"$@\"", files, program] + arguments,
                environment: bus.environment.merging(own) { $1 }.merging(environment) { $1 })
            let deadline = ContinuousClock.now + .seconds(300)
            while true {
                if let status = child.advance() { return (child.output, child.errors, status) }
                guard ContinuousClock.now < deadline else { throw TestFailure("appstatectl did not exit") }
                try loop.runOnce(timeout: 20_000)
            }
        }
    }

    @Test("launch passes the id, URLs, files as absolute URLs, and the user's activation token")
    func launch() throws {
        let desk = try Desk()
        try desk.write("files/a b%ä.txt", "text")
        let plain = try desk.run("launch", "org.example.Editor")
        #expect(plain.output == "/org/appstate1/application/1\n" && plain.status == .exited(0))
        #expect(desk.orders == ["org.example.Editor reason=user"])
        _ = try desk.run(
            "launch", "--background", "org.example.Editor", "a b%ä.txt", "https://example.org/?q=%20",
            environment: ["DESKTOP_STARTUP_ID": "start-1"])
        #expect(
            desk.orders == [
                "org.example.Editor activation-token=start-1 launch-mode=background reason=url "
                    + "urls=file://\(desk.files)/a%20b%25%C3%A4.txt,https://example.org/?q=%20"
            ])
        let tokens: [String: String?] = ["DESKTOP_STARTUP_ID": "start-1", "XDG_ACTIVATION_TOKEN": "token-1"]
        _ = try desk.run(
            "launch", "org.example.Editor",
            environment: tokens.merging(["WAYLAND_DISPLAY": "wayland-9"]) { $1 })
        #expect(desk.orders == ["org.example.Editor activation-token=token-1 reason=user"])
        // On X11 the first may be one that a terminal has used, and has not removed.
        _ = try desk.run("launch", "org.example.Editor", environment: tokens)
        #expect(desk.orders == ["org.example.Editor activation-token=start-1 reason=user"])
        _ = try desk.run("launch", "--scene", "new", "org.example.Editor")
        #expect(desk.orders == ["org.example.Editor reason=user scene=new"])
        #expect(
            try desk.run("launch", "--scene", "new", "--background", "org.example.Editor").status
                == .exited(64))
        let missing = try desk.run("launch", "org.example.Editor", "none.txt")
        #expect(missing.status == .exited(1) && desk.orders.isEmpty)
        #expect(missing.errors.contains("none.txt: No such file or directory"))
        _ = try desk.run("launch", "org.telegram.desktop")
        #expect(desk.orders == ["org.telegram.desktop reason=user"])
        desk.known = ["org.example.Editor"]
        let file = try desk.run("launch", "org.example.Editor.desktop")
        #expect(file.status == .exited(0))
        #expect(
            desk.orders == ["org.example.Editor.desktop reason=user", "org.example.Editor reason=user"])
        desk.known = nil
        let json = try desk.run("launch", "--json", "org.example.Editor").output
        #expect(json.contains("\"number\":1") && json.contains("\"path\":\"/org/appstate1/application/1\""))
    }

    @Test("open groups the files by application, and opens none if one of them has no handler")
    func open() throws {
        let desk = try Desk()
        try desk.application("org.example.Editor", "text/plain;text/x-csrc;")
        try desk.application("org.example.Browser", "x-scheme-handler/https;x-scheme-handler/http;")
        for name in ["one.txt", "two.txt"] { try desk.write("files/\(name)", "text") }
        let opened = try desk.run("open", "one.txt", "https://example.org/", "\(desk.files)/two.txt")
        #expect(opened.errors.isEmpty && opened.status == .exited(0))
        #expect(opened.output == "/org/appstate1/application/1\n/org/appstate1/application/2\n")
        #expect(
            desk.orders == [
                "org.example.Editor reason=url urls=file://\(desk.files)/one.txt,file://\(desk.files)/two.txt",
                "org.example.Browser reason=url urls=https://example.org/",
            ])
        _ = try desk.run("open", "--scene", "7f", "https://example.org/")
        #expect(desk.orders == ["org.example.Browser reason=url scene=7f urls=https://example.org/"])
        let unknown = try desk.run("open", "one.txt", "appstate-nothing:x")
        #expect(unknown.status == .exited(1) && desk.orders.isEmpty)
        #expect(unknown.errors.contains("x-scheme-handler/appstate-nothing"))
        for url in ["file:nothing", "file://host/x", "file:///%zz"] {
            let broken = try desk.run("open", "one.txt", url)
            #expect(broken.status == .exited(64) && desk.orders.isEmpty)
            #expect(broken.errors.contains("\"\(url)\" is not the URL of a file on this machine"))
        }
        let missing = try desk.run("open", "file:///nonexistent/x")
        #expect(missing.errors == "appstatectl: /nonexistent/x: No such file or directory\n")
    }
}
