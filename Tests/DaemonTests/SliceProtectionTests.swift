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

    private func protection(_ tree: Tree) throws -> SliceProtection {
        let slices = SliceProtection(
            hierarchy: UnifiedHierarchy(mountPoint: tree.root), journal: Journal(identifier: "test"))
        slices.configure(2_000)
        return slices
    }

    @Test("each slice above has as much as one application while an application below is protected")
    func shared() throws {
        let tree = try Tree(["u", "u/a", "u/a/one", "u/b", "u/b/two"])
        let slices = try protection(tree)
        slices.protect(one, "\(tree.root)/u/a/one")
        #expect(try ["u", "u/a"].map(tree.bytes) == [amount, amount])
        #expect(try ["u/a/one", "u/b", "u/b/two"].map(tree.bytes) == [0, 0, 0])
        slices.protect(two, "\(tree.root)/u/b/two")
        slices.protect(one, nil)
        #expect(try ["u", "u/a", "u/b"].map(tree.bytes) == [amount, 0, amount])
        // The application moves.
        slices.protect(two, "\(tree.root)/u/a/one")
        #expect(try ["u", "u/a", "u/b"].map(tree.bytes) == [amount, amount, 0])
        slices.configure(1_000)
        #expect(try tree.bytes("u") == Int(CgroupShares.pages(1_000)) * Int(getpagesize()))
        slices.configure(nil)
        #expect(try ["u", "u/a", "u/b"].map(tree.bytes) == [0, 0, 0])
    }

    @Test("a value that others have set is left alone; one left by an earlier daemon is taken over")
    func others() throws {
        let tree = try Tree(["u", "u/a", "u/a/one"])
        try tree.set("u", "\(64 << 20)")
        try tree.set("u/a", "\(amount)")
        let slices = try protection(tree)
        slices.protect(one, "\(tree.root)/u/a/one")
        #expect(try ["u", "u/a"].map(tree.bytes) == [64 << 20, amount])
        slices.protect(one, nil)
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
        slices.protect(two, "\(tree.root)/u/b/two")
        #expect(try tree.bytes("u") == amount)
        let next = SliceProtection(
            hierarchy: UnifiedHierarchy(mountPoint: tree.root), journal: Journal(identifier: "test"))
        next.takeBack(slices.entries(for: "\(tree.root)/u/b/two"))
        #expect(try tree.bytes("u") == 0)
        #expect(slices.entries(for: nil) == [])
    }

    @Test("a cgroup that is gone or elsewhere does no harm")
    func gone() throws {
        let tree = try Tree(["u", "u/a"])
        let slices = try protection(tree)
        slices.protect(one, "\(tree.root)/u/a/one")
        try FileManager.default.removeItem(atPath: tree.root + "/u/a")
        slices.protect(one, nil)
        #expect(try tree.bytes("u") == 0)
        slices.protect(one, "/somewhere/else")
        slices.protect(one, nil)
    }
}
