import Foundation
import LifeCycle
import Linux
import Systemd
import Testing

@testable import Daemon

/// A cgroup has no more `memory.low` than the cgroups above it. The tests use a made-up tree.
@Suite("Slices above protected applications")
struct SliceProtectionTests {
    private final class Tree {
        let root: String

        init(_ directories: [String]) throws {
            root = FileManager.default.temporaryDirectory.path + "/slices-\(UUID().uuidString)"
            for directory in directories {
                try FileManager.default.createDirectory(
                    atPath: "\(root)/\(directory)", withIntermediateDirectories: true)
                try set(directory, "0")
            }
        }

        deinit { try? FileManager.default.removeItem(atPath: root) }

        func set(_ directory: String, _ text: String) throws {
            try "\(text)\n".write(
                toFile: "\(root)/\(directory)/memory.low", atomically: false, encoding: .utf8)
        }

        func bytes(_ directory: String) throws -> Int? {
            let text = try String(contentsOfFile: "\(root)/\(directory)/memory.low", encoding: .utf8)
            return Int(text.split(separator: "\n").first ?? "")
        }
    }

    private let amount = Int(CgroupShares.pages(2_000)) * Int(getpagesize())
    private let one = ApplicationNumber(1)
    private let two = ApplicationNumber(2)

    /// Every record can be written.
    private let written: SliceProtection.Record = { _, _ in true }

    private func protection(_ tree: Tree) throws -> SliceProtection {
        let slices = SliceProtection(
            hierarchy: UnifiedHierarchy(mountPoint: tree.root), journal: Journal(identifier: "test"))
        slices.configure(2_000, written)
        return slices
    }

    @Test("each slice above has as much as one application while an application below is protected")
    func shared() throws {
        let tree = try Tree(["u", "u/a", "u/a/one", "u/b", "u/b/two"])
        let slices = try protection(tree)
        slices.protect(one, "\(tree.root)/u/a/one", written)
        #expect(try ["u", "u/a"].map(tree.bytes) == [amount, amount])
        #expect(try ["u/a/one", "u/b", "u/b/two"].map(tree.bytes) == [0, 0, 0])
        slices.protect(two, "\(tree.root)/u/b/two", written)
        slices.protect(one, nil, written)
        #expect(try ["u", "u/a", "u/b"].map(tree.bytes) == [amount, 0, amount])
        // The application moves.
        slices.protect(two, "\(tree.root)/u/a/one", written)
        #expect(try ["u", "u/a", "u/b"].map(tree.bytes) == [amount, amount, 0])
        slices.configure(1_000, written)
        #expect(try tree.bytes("u") == Int(CgroupShares.pages(1_000)) * Int(getpagesize()))
        slices.configure(nil, written)
        #expect(try ["u", "u/a", "u/b"].map(tree.bytes) == [0, 0, 0])
    }

    @Test("a value that others have set is left alone; one left by an earlier daemon is taken over")
    func others() throws {
        let tree = try Tree(["u", "u/a", "u/a/one"])
        try tree.set("u", "\(64 << 20)")
        try tree.set("u/a", "\(amount)")
        let slices = try protection(tree)
        slices.protect(one, "\(tree.root)/u/a/one", written)
        #expect(try ["u", "u/a"].map(tree.bytes) == [64 << 20, amount])
        slices.protect(one, nil, written)
        #expect(try ["u", "u/a"].map(tree.bytes) == [64 << 20, 0])
    }

    @Test("values given by an earlier daemon are taken back, also above cgroups that are gone")
    func earlier() throws {
        let tree = try Tree(["u", "u/a", "u/b", "u/b/two"])
        let slices = try protection(tree)
        let former = 3 * Int(getpagesize())
        for slice in ["u", "u/a"] { try tree.set(slice, "\(former)") }
        try tree.set("u/b", "\(64 << 20)")
        slices.takeBack([
            "slices 3 \(tree.root)/u/a/of two words", "slices 3 \(tree.root)/u/b/two", "slices 3",
            "slices x \(tree.root)/u/b/two", "memory-low 0 \(64 << 8) 4711 \(tree.root)/u/b/two",
        ])
        #expect(try ["u", "u/a", "u/b"].map(tree.bytes) == [0, 0, 64 << 20])
        // The recorded entries are what is taken back.
        slices.protect(two, "\(tree.root)/u/b/two", written)
        #expect(try tree.bytes("u") == amount)
        let next = SliceProtection(
            hierarchy: UnifiedHierarchy(mountPoint: tree.root), journal: Journal(identifier: "test"))
        next.takeBack(slices.entries(of: two))
        #expect(try tree.bytes("u") == 0)
        #expect(slices.entries(of: one) == [])
    }

    @Test("a daemon that is killed at any moment leaves no slice that its records do not name")
    func killed() throws {
        let tree = try Tree(["u", "u/a", "u/a/one", "u/b", "u/b/two"])
        let slices = try protection(tree)
        var records: [ApplicationNumber: [String]] = [:]
        var moments = 0
        /// Whether the next daemon would reset everything.
        func check(_ records: [ApplicationNumber: [String]]) throws {
            moments += 1
            let directories = ["u", "u/a", "u/b"]
            let values = try directories.map(tree.bytes)
            let next = SliceProtection(
                hierarchy: UnifiedHierarchy(mountPoint: tree.root), journal: Journal(identifier: "test"))
            for number in [one, two] { next.takeBack(records[number] ?? []) }
            #expect(try directories.map(tree.bytes) == [0, 0, 0], "\(records)")
            for (directory, value) in zip(directories, values) { try tree.set(directory, "\(value ?? 0)") }
        }
        let write: SliceProtection.Record = { number, entries in
            do {
                try check(records)
                records[number] = entries
                try check(records)
            } catch {
                Issue.record(error)
            }
            return true
        }
        // As the daemon does: the record of the next cgroup, then the application's own value, then the slices.
        func protect(_ number: ApplicationNumber, _ directory: String?) throws {
            _ = write(number, slices.entries(of: number, next: directory))
            slices.protect(number, directory, write)
            try check(records)
        }
        try protect(one, "\(tree.root)/u/a/one")
        try protect(two, "\(tree.root)/u/b/two")
        #expect(try ["u", "u/a", "u/b"].map(tree.bytes) == [amount, amount, amount])
        slices.configure(1_000, write)
        try check(records)
        try protect(two, "\(tree.root)/u/a/two")
        try protect(one, nil)
        try protect(two, nil)
        #expect(try ["u", "u/a", "u/b"].map(tree.bytes) == [0, 0, 0])
        #expect(records == [one: [], two: []] && moments > 20)
    }

    @Test("what cannot be recorded is not set")
    func unrecorded() throws {
        let tree = try Tree(["u", "u/a", "u/a/one"])
        let slices = try protection(tree)
        slices.protect(one, "\(tree.root)/u/a/one") { _, _ in false }
        #expect(try ["u", "u/a"].map(tree.bytes) == [0, 0])
        slices.protect(one, "\(tree.root)/u/a/one", written)
        #expect(try ["u", "u/a"].map(tree.bytes) == [amount, amount])
        slices.configure(1_000) { _, _ in false }
        #expect(try ["u", "u/a"].map(tree.bytes) == [0, 0])
    }
}
