import Foundation
import TestSupport
import Testing

/// scripts/check-skips: a skip that the list does not allow on this machine is an error.
@Suite("Skips")
struct SkipTests {
    private static let list = """
        # A comment.

        needs what everybody has
            command sh
        needs what nobody has
            # Another.
            command sh no-such-command
        needs what nobody has, of one test
            test one
            command no-such-command
        needs the kernel's *: [0-9]
            commands no-such-command no-such-command-either
        needs nonsense
            nonsense

        """

    /// Runs check-skips on these lines of swift test's output, with the list above.
    private func check(_ lines: String...) throws -> (status: Child.Ending, output: String, errors: String) {
        let directory = NSTemporaryDirectory() + "skips." + UUID().uuidString
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let text = lines.map { $0 + "\n" }.joined()
        try text.write(toFile: directory + "/output", atomically: true, encoding: .utf8)
        try Self.list.write(toFile: directory + "/list", atomically: true, encoding: .utf8)
        let child = try Child(
            Programs.root + "/scripts/check-skips", [directory + "/output", directory + "/list"])
        return (try child.waitForExit(), child.output, child.errors)
    }

    private static let passed = "✔ Test \"that is skipped: \"so\"\" passed after 0.001 seconds."

    @Test(
        "a skip that the list does not allow is an error that names the test",
        arguments: [
            // Not on the list; without a reason; for what the machine has; of a test that the list does not name.
            "Test \"two\" skipped: \"needs something else\"",
            "Test \"two\" skipped: \"needs what nobody has.\"",
            "Test \"two\" skipped.", "Test \"two\" skipped",
            "Test \"two\" skipped: \"needs what everybody has\"",
            "Test \"two\" skipped: \"needs what nobody has, of one test\"",
            "Test \"two\" skipped: \"needs nonsense\"",
        ])
    func refused(_ line: String) throws {
        let (status, _, errors) = try check(
            "➜ Test \"one\" skipped: \"needs what nobody has\"", "➜ " + line, Self.passed)
        #expect(status == .exited(1))
        #expect(errors.contains("\n  two: "), "\(errors)")
        #expect(!errors.contains("  one: "), "\(errors)")
    }

    @Test("the list of this repository is well-formed, and check-skips knows every word in it")
    func real() throws {
        let text = try String(contentsOfFile: Programs.root + "/Tests/skips", encoding: .utf8)
        let lines = text.split(separator: "\n").filter { !$0.hasPrefix("#") && !$0.hasPrefix("    #") }
        let reasons = lines.filter { !$0.hasPrefix("    ") }
        #expect(Set(reasons).count == reasons.count)
        let script = try String(contentsOfFile: Programs.root + "/scripts/check-skips", encoding: .utf8)
        for line in lines where line.hasPrefix("    ") && !line.hasPrefix("    test ") {
            let word = line.split(separator: " ")[0]
            #expect(script.contains("\n    \(word))"), "\(line)")
        }
        // A reason without anything below it allows nothing.
        for (line, next) in zip(lines, lines.dropFirst() + [""]) where !line.hasPrefix("    ") {
            #expect(next.hasPrefix("    "), "\(line)")
        }
    }

    @Test("a reason for named tests is given by no other tests, and the named tests exist")
    func named() throws {
        let text = try String(contentsOfFile: Programs.root + "/Tests/skips", encoding: .utf8)
        var listed: [String: Set<String>] = [:]
        var reason = ""
        for line in text.split(separator: "\n") where !line.hasPrefix("#") {
            if !line.hasPrefix("    ") {
                reason = String(line)
            } else if line.hasPrefix("    test ") {
                listed[reason, default: []].insert(String(line.dropFirst("    test ".count)))
            }
        }
        var tests: Set<String> = []
        let directory = URL(fileURLWithPath: Programs.root + "/Tests")
        let files = FileManager.default.enumerator(at: directory, includingPropertiesForKeys: nil)
        while let file = files?.nextObject() as? URL {
            guard file.pathExtension == "swift" else { continue }
            // What follows a test's name, up to its body: its traits.
            for block in try String(contentsOf: file, encoding: .utf8).components(separatedBy: "@Test(")
                .dropFirst()
            {
                let traits = block.components(separatedBy: " func ")[0]
                let strings = traits.components(separatedBy: "\"")
                guard strings.count > 1 else { continue }
                tests.insert(strings[1])
                for (reason, names) in listed where traits.contains("\"\(reason)\"") {
                    #expect(names.contains(strings[1]), "\(reason)")
                }
            }
        }
        let stale = listed.values.joined().filter { !tests.contains($0) }
        #expect(stale.isEmpty)
    }
}
