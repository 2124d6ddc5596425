import Foundation
import Glibc
import TestSupport
import Testing

@testable import SessionRules

/// What the agent reads from `session.conf`.
@Suite("The session agent's configuration")
struct SessionConfigurationTests {
    /// The configuration made from files with these texts, later ones on top of earlier ones. Complaints call them 0, 1
    /// and so on.
    private func read(_ texts: String...) throws -> Configuration {
        let directory = NSTemporaryDirectory() + "session.\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: directory) }
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        for (index, text) in texts.enumerated() {
            try text.write(toFile: "\(directory)/\(index)", atomically: true, encoding: .utf8)
        }
        return Configuration(
            reading: .layers(texts.indices.map { "\(directory)/\($0)" } + ["/nonexistent/x"]))
    }

    private func complaints(_ configuration: Configuration) -> [String] {
        configuration.complaints.map { "\($0)".split(separator: "/").last.map(String.init) ?? "" }
    }

    @Test("by default everything is adopted, and is suspended on request only")
    func defaults() throws {
        let configuration = try read("# nothing\n")
        #expect(configuration.adopt.matches(anyOf: ["org.example.App"]))
        #expect(configuration.suspension == .manual)
        #expect(complaints(configuration) == [])
    }

    @Test(
        "patterns match ids",
        arguments: [
            ("*", "org.example.App", true), ("org.example.*", "org.example.App", true),
            ("org.example.*", "org.example", false), ("*", "", true), ("App", "app", false),
            ("App", "org.example.App", false), ("*.App firefox", "firefox", true),
            ("* !firefox", "firefox", false), ("!firefox *", "firefox", false), ("!firefox", "gimp", true),
            ("!firefox", "firefox", false),
            ("* !org.kde.* !*shell", "gnome-shell", false), ("gimp-2.[0-9]*", "gimp-2.10", true),
            ("gimp-2.[!0-9]*", "gimp-2.10", false), ("????", "gimp", true),
            ("gimp-[[:digit:]]*", "gimp-2.10", true), ("gimp-[^[:alpha:].]*", "gimp-2", true),
            ("gim[]p]", "gimp", true), ("gimp]", "gimp", false), ("gim[p-]", "gimp", true),
        ])
    func patterns(_ words: String, _ id: String, _ matches: Bool) throws {
        let configuration = try read("[Session]\nAdopt=\(words)\n")
        #expect(configuration.adopt.matches(anyOf: [id]) == matches)
        #expect(complaints(configuration) == [])
    }

    @Test("the user's file extends the administrator's: lists are merged, and an empty value clears a list")
    func layers() throws {
        let administrator = "[Session]\nAdopt=firefox\nAdopt=gimp !vlc\nAdoptSuspension=automatic\n"
        let added = try read(administrator, "[Session]\nAdopt=vlc inkscape\n")
        #expect(["firefox", "gimp", "inkscape"].allSatisfy { added.adopt.matches(anyOf: [$0]) })
        #expect(!added.adopt.matches(anyOf: ["vlc"]))
        #expect(added.suspension == .automatic)
        let anew = try read(administrator, "[Session]\nAdopt=\nAdopt=vlc\nAdoptSuspension=\n")
        #expect(anew.adopt.matches(anyOf: ["vlc"]) && !anew.adopt.matches(anyOf: ["firefox"]))
        #expect(anew.suspension == .manual)
        #expect(try read(administrator, "[Session]\nAdopt=\n").adopt.isEmpty)
    }

    @Test("complaints name file, line, key and value, and all other settings are used")
    func complaints() throws {
        let configuration = try read(
            "Adopt=early\n[Session]\nAdopt=a/b firefox ! \"x\"\nAdoptSuspension=perhaps\nNonsense=1\n[Daemon]\nMode=x\n"
        )
        let allowed =
            "cannot match any application's id: ids consist of A-Z, a-z, 0-9, \".\", \"_\" and \"-\""
        #expect(
            configuration.complaints.map { String("\($0)".drop { $0 != ":" }) } == [
                ":1: Adopt=: is outside of any section", ":6: [Daemon] is not a section",
                ":3: Adopt=: \"a/b\" \(allowed)", ":3: Adopt=: \"!\" \(allowed)",
                ":3: Adopt=: \"\"x\"\" \(allowed)",
                ":4: AdoptSuspension=: \"perhaps\" is not one of manual, automatic, never",
                ":5: Nonsense=: no such key in [Session]",
            ])
        #expect(configuration.adopt.matches(anyOf: ["firefox"]))
        #expect(!configuration.adopt.matches(anyOf: ["early"]))
        #expect(configuration.suspension == .manual)
    }

    @Test("the sample file states the defaults, and its settings are valid")
    func sample() throws {
        let text = try String(contentsOfFile: Programs.root + "/systemd/session.conf", encoding: .utf8)
        let plain = try read(text)
        #expect(plain.suspension == .manual && plain.complaints.isEmpty)
        let lines = text.split(separator: "\n").map { line in
            line.hasPrefix("#Adopt") ? String(line.dropFirst()) : String(line)
        }
        let taken = try read(lines.joined(separator: "\n"))
        #expect(complaints(taken) == [])
        #expect(taken.adopt == plain.adopt && taken.suspension == .manual)
    }

    // MARK: Rules

    private func traits(_ id: String, _ windowClass: String = "", unit: String = "", program: String = "")
        -> Traits
    {
        var traits = Traits()
        traits[.id] = [id]
        traits[.windowClass] = [windowClass]
        traits[.unit] = [unit]
        traits[.program] = [program]
        return traits
    }

    @Test("a rule matches by id, class, unit and program, regardless of case")
    func matches() throws {
        let configuration = try read("[Application fire*]\nSuspension=automatic\n")
        func kind(_ traits: Traits) -> Traits.Kind? { configuration.rules(for: traits).first?.by }
        #expect(kind(traits("Firefox-esr", "firefox")) == .id)
        #expect(kind(traits("org.mozilla.x", "Firefox")) == .windowClass)
        #expect(kind(traits("x", "y", unit: "firefox", program: "firefox")) == .unit)
        #expect(kind(traits("x", "y", program: "firefox-bin")) == .program)
        #expect(kind(traits("x", "y", unit: "z", program: "chromium")) == nil)
    }

    @Test(
        "for each key the last matching rule counts, and the user's file comes after the administrator's"
    )
    func ruleLayers() throws {
        let configuration = try read(
            """
            [Application *]
            Suspension=automatic
            BackgroundGraceSec=1min
            KeepWhile=audio

            [Application gimp*]
            Suspension=never
            """,
            "[Application *]\nKeepWhile=none\nReclaimable=yes\n")
        let rules = configuration.rules(for: traits("gimp-2.10")).map(\.rule)
        #expect(rules.map(\.pattern) == ["*", "gimp*", "*"])
        let all = try #require(Rule.combined(rules))
        #expect(
            all.assignments == [
                "Suspension=never", "Reclaimable=yes", "BackgroundGraceSec=1min", "KeepWhile=none",
            ])
        #expect(complaints(configuration) == [])
    }

    @Test("invalid settings of a rule cause complaints")
    func ruleComplaints() throws {
        let configuration = try read(
            """
            [Application x]
            Suspension=often
            BackgroundGraceSec=5 parsecs
            KeepWhile=Audio
            Suspend=no
            KeepWhile=audio none
            IgnoreCallers=[a
            [Application]
            [Application [x]
            """)
        #expect(
            complaints(configuration) == [
                "0:8: [Application] is not a section", "0:9: [Application [x] is not a section",
                "0:2: Suspension=: \"often\" is not one of manual, automatic, never",
                "0:3: BackgroundGraceSec=: \"5 parsecs\" is not a time span (5, 500ms, 1min 30s, infinity)",
                "0:4: KeepWhile=: \"Audio\" is neither none alone nor a list of words of a-z, 0-9 and -",
                "0:5: Suspend=: no such key in [Application x]",
                "0:6: KeepWhile=: \"audio none\" is neither none alone nor a list of words of a-z, 0-9 and -",
                "0:7: IgnoreCallers=: \"[a\" is neither none alone nor a list of programs such as "
                    + "polybar*, with each bracket closed",
            ])
    }

    @Test("writing a rule changes nothing else in the file")
    func writing() {
        var file = RuleFile(
            "# mine\n[Session]\nAdopt=x\n\n[Application a]\nSuspension=never\n# why\n\n[Application b]\n")
        file.set([("Suspension", "automatic"), ("KeepWhile", "audio")], in: Rule("a"))
        file.set([("Suspension", "never")], in: Rule("c"))
        #expect(
            file.text
                == "# mine\n[Session]\nAdopt=x\n\n[Application a]\n# why\nSuspension=automatic\nKeepWhile=audio\n\n"
                + "[Application b]\n\n[Application c]\nSuspension=never\n")
        file.set([("KeepWhile", "")], in: Rule("a"))
        #expect(!file.text.contains("KeepWhile"))
        let removed = (file.remove(Rule("b")), file.remove(Rule("b")))
        #expect(removed == (true, false))
        #expect(!file.text.contains("Application b") && file.text.contains("# why"))
        var continued = RuleFile(
            "[Application  a ]\r\nKeepWhile=audio \\\r\n# why\r\n  clipboard\r\nSuspension=never\r\n")
        continued.set([("KeepWhile", "none")], in: Rule("a"))
        #expect(continued.text == "[Application  a ]\r\nSuspension=never\r\nKeepWhile=none\r\n")
        let isRemoved = continued.remove(Rule("a"))
        #expect(isRemoved && continued.text == "")
        var above = RuleFile(
            "[Application a]\nKeepWhile=audio \\\n  clipboard\n\n# about b\n\n# more\n[Application b]\n")
        above.set([("Suspension", "never")], in: Rule("a"))
        #expect(
            above.text
                == "[Application a]\nKeepWhile=audio \\\n  clipboard\n\n# about b\nSuspension=never\n\n# more\n"
                + "[Application b]\n")
        above.set([("Suspension", "")], in: Rule("a"))
        let isGone = above.remove(Rule("a"))
        #expect(isGone && above.text == "# about b\n\n# more\n[Application b]\n")
        for rest in ["", "# why\n"] {
            var open = RuleFile("[Application a]\nKeepWhile=audio \\\n" + rest)
            open.set([("Suspension", "never")], in: Rule("a"))
            #expect(
                open.text == "[Application a]\nKeepWhile=audio \\\n" + rest + "\nSuspension=never\n")
        }
        var empty = RuleFile("")
        empty.set([("Suspension", "automatic")], in: Rule("x y"))
        #expect(empty.text == "[Application x y]\nSuspension=automatic\n")
    }
}
