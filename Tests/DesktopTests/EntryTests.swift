import Desktop
import Foundation
import Linux
import TestSupport
import Testing

@Suite("Entries of applications")
struct EntryTests {
    private func entry(
        _ lines: String, id: String = "org.example.App", in environment: [String: String] = [:]
    ) throws -> DesktopEntry {
        try DesktopEntry(
            id: id, path: "/\(id).desktop", file: KeyFile(Array(lines.utf8)),
            locale: MessageLocale { environment[$0] })
    }

    @Test("only the group Desktop Entry is read, and comments and keys of other languages are ignored")
    func groups() throws {
        let entry = try entry(
            """
            # A comment = nothing
            [Other]
            Exec=other
            [Desktop Entry]
            Type=Application
            Name = The App \n  # Name=no
            Name[de]=Die App
              Exec\t=\tapp %U
            [Desktop Action new]
            Exec=app --new
            Name=New
            """)
        #expect(entry.name == "The App")
        #expect(entry.exec == "app %U")
    }

    @Test("the name and the icon are those of the user's language")
    func languages() throws {
        let lines = """
            [Desktop Entry]
            Type=Application
            Exec=true %c %i
            Name=plain
            Name[de]=language
            Name[de_AT]=country
            Name[sr@latin]=modifier
            Name[sr_RS@latin]=both
            Icon=a
            Icon[de]=b
            Icon[fr]=
            """
        let cases: [(environment: [String: String], name: String, icon: String)] = [
            ([:], "plain", "a"), (["LANG": "C.UTF-8"], "plain", "a"), (["LANG": "fr_FR"], "plain", "a"),
            (["LANG": "de"], "language", "b"), (["LANG": "de_DE.UTF-8"], "language", "b"),
            (["LANG": "de_AT.UTF-8@euro"], "country", "b"), (["LANG": "@latin"], "plain", "a"),
            (["LC_MESSAGES": "sr_RS.UTF-8@latin", "LANG": "de_DE"], "both", "a"),
            (["LC_ALL": "sr_ME@latin", "LC_MESSAGES": "de_AT"], "modifier", "a"),
        ]
        for (environment, name, icon) in cases {
            let entry = try entry(lines, in: environment)
            #expect(entry.name == name && entry.icon == icon, "\(environment)")
            let arguments = try entry.invocations().first?.arguments
            #expect(arguments == ["true", name, "--icon", icon], "\(environment)")
        }
    }

    @Test("escapes in values and lists are decoded")
    func escapes() throws {
        let entry = try entry(
            #"""
            [Desktop Entry]
            Type=Application
            Name=\sA\tB\nC\rD\\E\x
            MimeType=text/plain;a\;b/c\\d;;image/png
            OnlyShowIn=GNOME;KDE;
            Path=
            Terminal=true
            DBusActivatable=1
            StartupNotify=false
            """#)
        #expect(entry.name == " A\tB\nC\rD\\E\\x")
        #expect(entry.mimeTypes == ["text/plain", "a;b/c\\d", "image/png"])
        #expect(entry.onlyShowIn == ["GNOME", "KDE"])
        #expect(entry.workingDirectory == nil && entry.exec == nil)
        #expect(entry.needsTerminal && entry.isDBusActivatable && entry.startupNotify == false)
    }

    @Test("invalid UTF-8 and unusual line ends do not affect the rest of the entry")
    func bytes() throws {
        let bytes =
            Array("[Desktop Entry]\r\nName=a".utf8) + [0xFF, 0, 0xE2]
            + Array("\r\nType=Application\r\nExec=x\r".utf8)
        let entry = try DesktopEntry(id: "a", path: "/a", file: KeyFile(bytes))
        #expect(entry.exec == "x")
        #expect(entry.name.hasPrefix("a\u{FFFD}"))
        // A Unicode line separator does not end a line.
        #expect(try self.entry("[Desktop Entry]\nType=Application\nName=a\u{2028}b").name == "a\u{2028}b")
    }

    @Test("an entry of another type, or without a type, is no application")
    func types() throws {
        #expect(throws: DesktopFailure.notApplication(id: "org.example.App", type: "Link")) {
            try entry("[Desktop Entry]\nType=Link\nURL=http://a")
        }
        #expect(throws: DesktopFailure.notApplication(id: "org.example.App", type: "")) {
            try entry("[Desktop Entry]\nExec=a")
        }
    }

    @Test("the first directory with an id wins, even if it hides the entry")
    func directories() throws {
        let scratch = try Scratch()
        let text = "[Desktop Entry]\nType=Application\nExec=true\n"
        try scratch.write(text + "Name=own\n", to: "own/applications/both.desktop")
        try scratch.write(text + "Name=system\n", to: "system/applications/both.desktop")
        try scratch.write("[Desktop Entry]\nHidden=true\n", to: "own/applications/gone.desktop")
        try scratch.write(text, to: "system/applications/gone.desktop")
        try scratch.write(text + "Name=deep\n", to: "system/applications/kde4/a/foo-bar.desktop")
        try scratch.write(text, to: "system/secret.desktop")
        let entries = EntryDirectories(
            BaseDirectories(
                data: ["\(scratch.path)/own", "relative", "\(scratch.path)/system"], configuration: []))
        #expect(try entries.entry("both").name == "own")
        #expect(
            throws: DesktopFailure.hidden(id: "gone", path: "\(scratch.path)/own/applications/gone.desktop")
        ) {
            try entries.entry("gone")
        }
        #expect(try entries.entry("kde4-a-foo-bar").name == "deep")
        for id in [
            "none", "", "..-secret", "../secret", "kde4/a/foo-bar", String(repeating: "a", count: 300),
        ] {
            #expect(throws: DesktopFailure.noEntry(id: id)) { try entries.entry(id) }
        }
    }
}
