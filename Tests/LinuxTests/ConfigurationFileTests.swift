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

    @Test("lines may end as on other systems, and the last line may lack an end")
    func lineEnds() {
        let file = read("[Daemon]\r\nMode=observe\r\n\r\n[Limits]\r\nStringBytes=7")
        #expect(
            file.assignments == [
                .init(line: 2, section: "Daemon", key: "Mode", value: "observe"),
                .init(line: 5, section: "Limits", key: "StringBytes", value: "7"),
            ])
        #expect(file.complaints == [])
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

    @Test("a byte order mark at the beginning is ignored; elsewhere it is text")
    func byteOrderMark() {
        let file = read("\u{FEFF}[Daemon]\nMode=\u{FEFF}enforce\n")
        #expect(
            file.assignments == [.init(line: 2, section: "Daemon", key: "Mode", value: "\u{FEFF}enforce")])
        #expect(file.complaints == [])
        #expect(read("\u{FEFF}# a comment\n\u{FEFF}").complaints.map(\.line) == [2])
        #expect(read("\u{FEFF}").complaints == [])
    }

    @Test("a very long line is truncated in its complaint", arguments: ["", "[", "="])
    func long(_ beginning: String) throws {
        let complaint = try #require(
            read(beginning + String(repeating: "x", count: 1 << 20)).complaints.first?.description)
        #expect(complaint.contains("xxx…") || beginning == "=", "\(complaint)")
        #expect(complaint.utf8.count < 200)
    }

    @Test("an empty file is valid", arguments: ["", "\n", "\n\n\n", "#", "\\", " \t "])
    func empty(_ text: String) {
        let file = read(text)
        #expect(file.assignments == [])
        #expect(file.complaints == [])
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
