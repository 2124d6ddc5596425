import Foundation
import Glibc
import Testing

@testable import Linux

/// The syntax of systemd.syntax(7).
@Suite("Configuration files")
struct ConfigurationFileTests {
    private func read(_ text: String) -> ConfigurationFile { ConfigurationFile(text, name: "test.conf") }

    @Test("sections, keys and values are read, with or without blanks around them")
    func assignments() {
        let file = read("[Daemon]\nMode=enforce\n\n [Limits]\t\n  StringBytes \t= 5 \nEmpty=\nEquals=a=b\n")
        #expect(
            file.assignments == [
                .init(line: 2, section: "Daemon", key: "Mode", value: "enforce"),
                .init(line: 5, section: "Limits", key: "StringBytes", value: "5"),
                .init(line: 6, section: "Limits", key: "Empty", value: ""),
                .init(line: 7, section: "Limits", key: "Equals", value: "a=b"),
            ])
        #expect(file.sections.map(\.name) == ["Daemon", "Limits"])
        #expect(file.sections.map(\.line) == [1, 4])
        #expect(file.complaints == [])
    }

    @Test("comments begin with # or ;, also after blanks; elsewhere these characters are text")
    func comments() {
        let file = read("# first\n; second\n[Daemon]\n  # third=1\nMode=enforce # not one\n")
        #expect(
            file.assignments == [.init(line: 5, section: "Daemon", key: "Mode", value: "enforce # not one")])
        #expect(file.complaints == [])
    }

    @Test("a backslash at its end joins a line with the next; comments in between are left out")
    func continuations() {
        let file = read("[A]\nKey=one \\\n# nothing\n  two\\\nthree\nNext=1\nLast=end\\")
        #expect(
            file.assignments == [
                .init(line: 2, section: "A", key: "Key", value: "one    two three"),
                .init(line: 6, section: "A", key: "Next", value: "1"),
                .init(line: 7, section: "A", key: "Last", value: "end"),
            ])
    }

    @Test("invalid lines cause complaints with file and line, and the rest is used")
    func nonsense() {
        let file = read("Early=1\n[Daemon\nMode=observe\n[]\n[Daemon]\nnonsense\nMode=enforce\n=5\n")
        #expect(file.assignments.first == .init(line: 7, section: "Daemon", key: "Mode", value: "enforce"))
        #expect(
            file.complaints.map(\.description) == [
                "test.conf:1: Early=: is outside of any section",
                "test.conf:2: [Daemon is not a section",
                "test.conf:3: Mode=: is outside of any section",
                "test.conf:4: [] is not a section",
                "test.conf:6: \"nonsense\" is neither a section nor Key=value",
            ])
    }

    @Test("a link to /dev/null is an empty file, and any other device a complaint")
    func masked() throws {
        let link = NSTemporaryDirectory() + "masked.\(UUID().uuidString)"
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: "/dev/null")
        let masked = ConfigurationFile(reading: link, mayBeMissing: false)
        unlink(link)
        #expect(masked.complaints.isEmpty && masked.sections.isEmpty)
        #expect(ConfigurationFile(reading: "/dev/zero", mayBeMissing: false).complaints.count == 1)
    }
}
