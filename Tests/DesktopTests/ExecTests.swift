import Desktop
import Foundation
import Linux
import TestSupport
import Testing

@Suite("Command lines of desktop entries")
struct ExecTests {
    private func entry(_ exec: String, _ more: String = "") throws -> DesktopEntry {
        let lines = "[Desktop Entry]\nType=Application\nName=The App\nIcon=app\n\(more)\nExec=\(exec)\n"
        return try DesktopEntry(
            id: "app", path: "/usr/share/applications/app.desktop", file: KeyFile(Array(lines.utf8)))
    }

    /// The arguments of each command line that starts `true`.
    private func lines(_ exec: String, _ urls: [String] = []) throws -> [[String]] {
        try entry(exec).invocations(opening: urls).map { Array($0.arguments.dropFirst()) }
    }

    // Not passed as arguments of @Test: Swift 6.0.3 crashes there on a string with an interpolation.
    private static let quoting: [(exec: String, arguments: [String])] = [
        ("true", []), (" true  a\tb ", ["a", "b"]), ("true \"a b\" c", ["a b", "c"]),
        ("true \"\" b", ["", "b"]),
        // The file format consumes one half of the backslashes: the specification's own examples of a dollar sign and
        // of a backslash.
        (#"true "\\$HOME""#, ["$HOME"]), (#"true "a\\\\b""#, [#"a\b"#]), (#"true "\\"q\\"""#, ["\"q\""]),
        (#"true "\\`x\\`""#, ["`x`"]), (#"true "a\\nb""#, [#"a\nb"#]), ("true 100%%", ["100%"]),
        // As Wine and others write it.
        (
            #"true WINEPREFIX="/home/a b/.wine" wine C:\\\\a\\ b"#,
            ["WINEPREFIX=/home/a b/.wine", "wine", #"C:\a b"#]
        ),
        ("true -c 'a \"b\" $c'", ["-c", "a \"b\" $c"]), ("\"true\" a", ["a"]),
        // What only a shell would expand stays as it is.
        ("true $HOME ~ *", ["$HOME", "~", "*"]),
    ]

    @Test("arguments are split and unquoted according to the specification")
    func split() throws {
        for (exec, arguments) in Self.quoting {
            #expect(try lines(exec) == [arguments], "\(exec)")
        }
    }

    private static let fields: [(exec: String, urls: [String], lines: [[String]])] = [
        ("true %f", [], [[]]), ("true %f x", ["file:///a%20b"], [["/a b", "x"]]),
        ("true %f", ["file:///a", "/b c"], [["/a"], ["/b c"]]),
        ("true %F", ["file:///a", "file://localhost/b%C3%A9"], [["/a", "/bé"]]),
        ("true %u", ["http://a/%20", "file:///b"], [["http://a/%20"], ["file:///b"]]),
        ("true %U -- x", ["mailto:a@b", "/c d"], [["mailto:a@b", "file:///c%20d", "--", "x"]]),
        ("true --file=%f", [], [["--file="]]), ("true --file=%f", ["/a"], [["--file=/a"]]),
        ("true a%Fb", ["/1", "/2"], [["a/1", "/2b"]]), ("true \"%u\"", ["x:a b"], [["x:a b"]]),
        ("true %i %c %k", [], [["--icon", "app", "The App", "/usr/share/applications/app.desktop"]]),
        ("true --caption \"%c\"", [], [["--caption", "The App"]]),
        ("true %d%D %n %N %v %m a", [], [["a"]]),
        // No field for files: appended, as in GLib and KDE.
        ("true a", ["file:///1", "file:///2"], [["a", "/1"], ["a", "/2"]]),
    ]

    @Test("field codes are replaced by what is opened")
    func codes() throws {
        for (exec, urls, expected) in Self.fields {
            #expect(try lines(exec, urls) == expected, "\(exec)")
        }
    }

    private static let broken: [(exec: String, why: DesktopFailure)] = [
        ("true \"a", .brokenExec(id: "app", exec: "true \"a", why: "a quotation mark is not closed")),
        ("true 'a", .brokenExec(id: "app", exec: "true 'a", why: "a quotation mark is not closed")),
        (
            #"true a\\"#,
            .brokenExec(id: "app", exec: "true a\\", why: "nothing comes after its last backslash")
        ),
        ("\"\" a", .brokenExec(id: "app", exec: "\"\" a", why: "it names no program")),
        ("%f", .brokenExec(id: "app", exec: "%f", why: "it names no program")),
        ("true %x", .unknownFieldCode(id: "app", exec: "true %x", code: "x")),
        ("true %é", .unknownFieldCode(id: "app", exec: "true %é", code: "é")),
        ("true %", .unknownFieldCode(id: "app", exec: "true %", code: "")),
        ("no-such-program a", .programMissing(id: "app", program: "no-such-program")),
        ("/no/such/program a", .programMissing(id: "app", program: "/no/such/program")),
        ("/etc a", .programMissing(id: "app", program: "/etc")), ("", .nothingToStart(id: "app")),
    ]

    @Test("a malformed command line is refused with a specific error")
    func refusals() throws {
        for (exec, why) in Self.broken {
            #expect(throws: why, "\(exec)") { try entry(exec).invocations() }
            #expect("\(why)".contains("app"))
        }
        #expect(throws: DesktopFailure.remoteURL(id: "app", url: "http://a")) {
            try lines("true %f", ["http://a"])
        }
        #expect(throws: DesktopFailure.remoteURL(id: "app", url: "file://host/a")) {
            try lines("true %F", ["file://host/a"])
        }
        #expect(throws: DesktopFailure.takesNoURL(id: "app", exec: "true", url: "http://a")) {
            try lines("true", ["b", "http://a"])
        }
        #expect(throws: DesktopFailure.notURL("a b")) { try lines("true %u", ["a b"]) }
    }

    @Test("TryExec and Path must exist")
    func tests() throws {
        #expect(throws: DesktopFailure.tryExecMissing(id: "app", program: "no-such")) {
            try entry("true", "TryExec=no-such").invocations()
        }
        #expect(try entry("true", "TryExec=/bin/sh\nPath=/tmp").invocations().first?.directory == "/tmp")
        #expect(throws: DesktopFailure.directoryMissing(id: "app", directory: "/no/such")) {
            try entry("true", "Path=/no/such").invocations()
        }
        #expect(try entry("true").isInstalled() && !entry("no-such").isInstalled())
        #expect(try !entry("true", "TryExec=no-such").isInstalled())
    }

    @Test("a program in a terminal gets the first available emulator, with that emulator's options")
    func terminal() throws {
        let scratch = try Scratch()
        let file = try scratch.program("bin/app")
        let programs = ProgramPath("\(scratch.path)/bin")
        let entry = try entry("app \"a b\"", "Terminal=true")
        #expect(throws: DesktopFailure.noTerminal(id: "app")) { try entry.invocations(programs: programs) }
        let order: [(String, [String])] = [
            ("lxterminal", ["--no-remote", "-e"]), ("qterminal", ["-e"]), ("tilix", ["--new-process", "-e"]),
            ("terminator", ["--no-dbus", "-x"]), ("wezterm", ["start", "--always-new-process", "--"]),
            ("ghostty", ["-e"]), ("mate-terminal", ["--disable-factory", "-x"]), ("kgx", ["--"]),
            ("ptyxis", ["--standalone", "--"]), ("xterm", ["-e"]), ("alacritty", ["-e"]), ("kitty", []),
            ("foot", []), ("xfce4-terminal", ["--disable-server", "-x"]), ("konsole", ["-e"]),
            ("gnome-terminal", ["--wait", "--"]), ("x-terminal-emulator", ["-e"]),
        ]
        for (name, options) in order {
            let emulator = try scratch.program("bin/\(name)")
            let line = try entry.invocations(programs: programs)
            #expect(line == [Invocation(program: emulator, arguments: [name] + options + [file, "a b"])])
        }
        let own = try scratch.program("own/mine")
        let preferred = try entry.invocations(programs: programs, terminal: "\(own) --big")
        #expect(preferred.first?.arguments == [own, "--big", "-e", file, "a b"])
        let client = try scratch.program("own/footclient")
        #expect(
            try entry.invocations(programs: programs, terminal: client).first?.arguments
                == [client, file, "a b"])
        let chooser = try scratch.program("bin/xdg-terminal-exec")
        let chosen = try entry.invocations(programs: programs, terminal: own)
        #expect(chosen.first?.program == chooser)
        #expect(chosen.first?.arguments == ["xdg-terminal-exec", file, "a b"])
    }
}
