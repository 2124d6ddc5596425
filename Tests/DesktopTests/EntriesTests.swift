import Desktop
import Foundation
import Glibc
import TestSupport
import Testing

/// What appstate-entries, which reads them with GIO, says about desktop entries.
@Suite("Desktop entries")
struct EntriesTests {
    /// Directories of entries, and the program that reads them.
    private final class Stage {
        let scratch: Scratch
        var path: String { scratch.path }

        init() throws { scratch = try Scratch() }

        func add(_ id: String, _ lines: String, to directory: String = "share") throws {
            try scratch.write(
                "[Desktop Entry]\nType=Application\nName=The App\n\(lines)\n[Desktop Action new]\nExec=other\n",
                to: "\(directory)/applications/\(id).desktop")
        }

        var entries: DesktopEntries { DesktopEntries(directories: ["\(path)/own", "\(path)/share"]) }

        /// The records that the program prints.
        func ask(_ arguments: [String], _ environment: [String: String?] = [:]) throws -> [[String]] {
            let own: [String: String?] = [
                "XDG_DATA_HOME": "\(path)/own", "XDG_DATA_DIRS": "\(path)/share", "TERMINAL": nil,
                "XDG_CONFIG_HOME": "\(path)/config", "XDG_CONFIG_DIRS": "\(path)/xdg", "LC_ALL": "C",
                "XDG_CURRENT_DESKTOP": nil,
            ]
            let program = try #require(Programs.built("appstate-entries"))
            let child = try Child(program, arguments, environment: own.merging(environment) { $1 })
            _ = try child.waitForExit()
            var fields = child.output.split(separator: "\0", omittingEmptySubsequences: false).map(
                String.init)[...]
            var records: [[String]] = []
            while let first = fields.popFirst(), let count = Int(first) {
                records.append(Array(fields.prefix(count)))
                fields = fields.dropFirst(count)
            }
            return records
        }

        /// The arguments of each command line that starts `true`, or the text of the failure.
        func lines(_ exec: String, _ urls: [String] = [], _ more: String = "") throws -> [[String]] {
            try add("app", "Icon=app\n\(more)\nExec=\(exec)")
            let records = try ask(["start", "app"] + urls)
            guard records[0].count > 2 else { return [records[0]] }
            return records.dropFirst().map { Array($0.dropFirst(3)) }
        }
    }

    @Test(
        "entries are found by id, class, end of the id and program, in this order",
        arguments: [
            ("org.xfce.mousepad", nil, "org.xfce.mousepad"), ("Mousepad", nil, "org.xfce.mousepad"),
            ("Gimp-2.10", nil, "gimp"),
            // By program only entries that name no class.
            ("", "true", "gimp-copy"), ("Unknown", "true", "gimp-copy"),
            // Two entries name this program, and one of them is not an application for users.
            ("Something", "cat", "org.xfce.mousepad"), ("Firefox-ESR", "ls", "firefox-esr"),
            // The class of the window says more than the program.
            ("crx_1", "sort", "chrome-crx_1-Default"), ("Chromium", "sort", "chromium"),
            ("Nothing", "nothing", nil), ("", nil, nil), ("twins", nil, nil), ("a/b", "../x", nil),
            // An interpreter is not an application.
            ("Other", "sh", nil),
        ])
    func identified(_ windowClass: String, _ program: String?, _ id: String?) throws {
        let stage = try Stage()
        try stage.add("org.xfce.mousepad", "Exec=cat %U")
        try stage.add("org.xfce.mousepad-settings", "Exec=cat --preferences\nNoDisplay=true")
        try stage.add("gimp", "Exec=env A=1 /usr/bin/true %U\nStartupWMClass=gimp-2.10")
        try stage.add("gimp-copy", "Exec=true %U")
        try stage.add("firefox-esr", "Exec=/bin/ls %u\nStartupWMClass=Firefox-esr")
        try stage.add("chromium", "Exec=/usr/bin/sort %U\nStartupWMClass=Chromium")
        try stage.add("chrome-crx_1-Default", "Exec=/usr/bin/sort --app-id=1\nStartupWMClass=crx_1")
        try stage.add("one", "Exec=head\nStartupWMClass=twins")
        try stage.add("two", "Exec=tail\nStartupWMClass=twins")
        try stage.add("script", "Exec=sh script")
        #expect(stage.entries.id(ofClass: windowClass, program: program) == id)
        #expect(stage.entries.command(of: "gimp") == "true")
        #expect(stage.entries.command(of: "../gimp") == nil)
    }

    @Test("an entry that is installed later is found, and a user's entry replaces the system's")
    func changed() throws {
        let stage = try Stage()
        let entries = stage.entries
        #expect(entries.id(ofClass: "Editor", program: "true") == nil)
        try stage.add("org.example.Editor", "Exec=true\nX-AppState-ActivityTypes=a;b;")
        #expect(entries.id(ofClass: "Editor", program: "true") == "org.example.Editor")
        #expect(entries.all.first?.activityTypes == ["a", "b"])
        try stage.add("org.example.Editor", "Exec=cat", to: "own")
        #expect(entries.id(ofClass: "", program: "cat") == "org.example.Editor")
        #expect(entries.id(ofClass: "", program: "true") == nil)
    }

    // Not passed as arguments of @Test: Swift 6.0.3 crashes there on a string with an interpolation.
    private static let lines: [(exec: String, urls: [String], lines: [[String]])] = [
        (" true  a\tb ", [], [["a", "b"]]), ("true \"\" \"a b\" c", [], [["", "a b", "c"]]),
        // The file format consumes one half of the backslashes: the specification's own example.
        (#"true "\\$HOME" $HOME ~ *"#, [], [["$HOME", "$HOME", "~", "*"]]),
        // As Wine writes it.
        (
            #"true WINEPREFIX="/home/a b/.wine" wine C:\\\\a\\ b"#, [],
            [["WINEPREFIX=/home/a b/.wine", "wine", #"C:\a b"#]]
        ),
        ("true -c 'a \"b\" $c' 100%%", [], [["-c", "a \"b\" $c", "100%"]]),
        ("true %f x", ["file:///a%20b"], [["/a b", "x"]]), ("true %f", [], [[]]),
        ("true %f", ["file:///a", "/b c"], [["/a"], ["/b c"]]),
        ("true %F", ["file:///a", "file://localhost/b%C3%A9"], [["/a", "/bé"]]),
        ("true %u", ["http://a/%20", "file:///b"], [["http://a/%20"], ["file:///b"]]),
        ("true %U -- x", ["mailto:a@b", "/c d"], [["mailto:a@b", "file:///c%20d", "--", "x"]]),
        ("true --file=%f", [], [["--file="]]), ("true --file=%f", ["/a"], [["--file=/a"]]),
        ("true a%Fb", ["/1", "/2"], [["a/1", "/2b"]]), ("true \"%u\"", ["x:a b"], [["x:a b"]]),
        ("true %i %c %d%D %n a", [], [["--icon", "app", "The App", "a"]]),
        // No field for files: appended, as GLib and KDE do.
        ("true a", ["file:///1", "file:///2"], [["a", "/1"], ["a", "/2"]]),
    ]

    @Test("a command line is split and unquoted, and its field codes are replaced by what is opened")
    func commandLines() throws {
        let stage = try Stage()
        for (exec, urls, lines) in Self.lines {
            #expect(try stage.lines(exec, urls) == lines, "\(exec)")
        }
    }

    private static let invalid = "org.freedesktop.DBus.Error.InvalidArgs"
    private static let absent = "org.appstate1.Error.NoSuchApplication"
    private static let failed = "org.freedesktop.DBus.Error.Failed"
    private static let refused: [(exec: String, urls: [String], more: String, name: String, words: String)] =
        [
            ("true \"a", [], "", invalid, "Exec of app is not a command line"),
            ("\"\" a", [], "", failed, "Exec of app names the program"),
            ("true %x", [], "", invalid, "unknown field code %x"),
            ("true %", [], "", invalid, "unknown field code"),
            ("no-such-program a", [], "", failed, "the program no-such-program, which is not installed"),
            ("true", [], "TryExec=no-such", absent, "TryExec of app names the program no-such"),
            ("true", [], "Path=/no/such", failed, "the directory /no/such, which does not exist"),
            ("true", [], "Hidden=true", absent, "the desktop entry app is hidden by"),
            ("true", [], "Type=Link", absent, "is a Link, not an Application"),
            ("", [], "", "org.freedesktop.DBus.Error.NotSupported", "there is nothing to start"),
            ("true %f", ["http://a"], "", invalid, "app opens files of this machine only, not http://a"),
            (
                "true", ["/b", "http://a"], "", invalid,
                "Exec of app has no %u or %U for a URL such as http://a"
            ),
            ("true %u", ["a b"], "", invalid, "a b is neither a URL nor an absolute path"),
        ]

    @Test("what cannot be started is refused with the reason")
    func refusals() throws {
        let stage = try Stage()
        for (exec, urls, more, name, words) in Self.refused {
            let said = try stage.lines(exec, urls, more)
            #expect(
                said.first?.first == name && said.first?.last?.contains(words) == true, "\(exec): \(said)")
        }
        for id in ["none", "", "../app", "a/b"] {
            #expect(try stage.ask(["start", id]) == [[Self.absent, "there is no desktop entry \(id)"]])
        }
    }

    @Test(
        "an entry of a subdirectory is found, in the user's language, with what the session bus needs of it")
    func entry() throws {
        let stage = try Stage()
        try stage.add(
            "kde4/a/foo-bar",
            "Name[de]=Die App\nIcon=a\nIcon[de]=b\nStartupNotify=true\nDBusActivatable=true\nExec=true %x")
        let said = try stage.ask(["start", "kde4-a-foo-bar"], ["LC_ALL": "de_AT.UTF-8", "LANGUAGE": nil])
        let path = "\(stage.path)/share/applications/kde4/a/foo-bar.desktop"
        #expect(said.count == 1 && said[0].prefix(6) == [path, "Die App", "b", "", "notify", "bus"])
        #expect(said[0].last?.contains("unknown field code %x") == true)
    }

    @Test("a program in a terminal gets the first available emulator, with that emulator's options")
    func terminal() throws {
        let stage = try Stage()
        let bin = "\(stage.path)/bin"
        let file = try stage.scratch.program("bin/app")
        try stage.add("app", "Exec=app \"a b\"\nTerminal=true")
        func command(_ terminal: String? = nil) throws -> [String] {
            Array(
                try stage.ask(["start", "app"], ["PATH": bin, "TERMINAL": terminal]).last?.dropFirst() ?? [])
        }
        #expect(try command() == ["app runs in a terminal, and no terminal emulator is installed"])
        for (name, options) in [
            ("xterm", ["-e"]), ("foot", []), ("xfce4-terminal", ["--disable-server", "-x"]),
        ] {
            let emulator = try stage.scratch.program("bin/\(name)")
            #expect(try command() == [emulator, name] + options + [file, "a b"])
        }
        // Debian's wrapper takes only -e, so the emulator behind it is started.
        try FileManager.default.createSymbolicLink(
            atPath: "\(bin)/x-terminal-emulator", withDestinationPath: "\(bin)/xfce4-terminal.wrapper")
        _ = try stage.scratch.program("bin/xfce4-terminal.wrapper")
        #expect(try command().prefix(3) == ["\(bin)/xfce4-terminal", "xfce4-terminal", "--disable-server"])
        let own = try stage.scratch.program("own/mine")
        #expect(try command("\(own) --big") == [own, own, "--big", "-e", file, "a b"])
        let chooser = try stage.scratch.program("bin/xdg-terminal-exec")
        #expect(try command(own) == [chooser, "xdg-terminal-exec", file, "a b"])
    }

    @Test(
        "URLs and files are opened by the default application for their scheme or type",
        .enabled(
            if: access("/usr/share/mime/globs2", R_OK) == 0, "the types' database is not installed"))
    func defaults() throws {
        let stage = try Stage()
        try FileManager.default.createSymbolicLink(
            atPath: "\(stage.path)/xdg", withDestinationPath: "/etc/xdg")
        for id in ["browser", "viewer", "other", "editor"] { try stage.add(id, "Exec=true %U") }
        try stage.scratch.write(
            """
            [Default Applications]
            x-scheme-handler/http=none.desktop;browser.desktop
            image/png=none.desktop;viewer.desktop
            inode/directory=other.desktop
            text/plain=editor.desktop
            """, to: "config/mimeapps.list")
        try stage.scratch.write("x", to: "a b.png")
        let path = stage.path
        let urls = ["HTTP://example.org", "file://\(path)/a%20b.png", "\(path)/a b.png", "file://\(path)"]
        let types = ["XDG_DATA_DIRS": "\(path)/share:/usr/share"]
        #expect(try stage.ask(["open"] + urls, types) == [["browser"], ["viewer"], ["viewer"], ["other"]])
        let said = try stage.ask(["open", "http://a", "no:x"], types).last?.last
        #expect(said?.contains("no application is known to open no:x (x-scheme-handler/no)") == true)
        #expect(try stage.ask(["open", "\(path)/none"]).last?.first == Self.failed)
        #expect(try stage.ask(["open", "none"]).last?.first == Self.invalid)
    }
}
