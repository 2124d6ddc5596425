import LifeCycle
import Linux
import Systemd
import Testing

@testable import Daemon

/// A cgroup has no more `memory.low` than the cgroups above it. The tests use a made-up tree.
@Suite("Slices above protected applications")
struct SliceProtectionTests {
    private let amount = "\(ResourceRow.bytes(2_000))"
    private let one = ApplicationNumber(1)
    private let two = ApplicationNumber(2)

    private func tree(_ directories: [String]) throws -> CgroupTree {
        let tree = try CgroupTree()
        for directory in directories { try tree.make(directory, [.memoryLow: "0"]) }
        return tree
    }

    private func protection() -> SliceProtection {
        var slices = SliceProtection(journal: Journal(identifier: "test"))
        slices.configure(2_000)
        return slices
    }

    @Test("each slice above has as much as one application while an application below is protected")
    func shared() throws {
        let tree = try tree(["u", "u/a", "u/a/one", "u/b", "u/b/two"])
        func lows(_ names: String...) throws -> [String] {
            try names.map { try tree[$0].value(of: .memoryLow) }
        }
        var slices = protection()
        slices.protect(one, try tree["u/a/one"])
        #expect(try lows("u", "u/a") == [amount, amount])
        #expect(try lows("u/a/one", "u/b", "u/b/two") == ["0", "0", "0"])
        slices.protect(two, try tree["u/b/two"])
        slices.protect(one, nil)
        #expect(try lows("u", "u/a", "u/b") == [amount, "0", amount])
        // The application moves.
        slices.protect(two, try tree["u/a/one"])
        #expect(try lows("u", "u/a", "u/b") == [amount, amount, "0"])
        slices.configure(nil)
        #expect(try lows("u", "u/a", "u/b") == ["0", "0", "0"])
    }

    @Test("a value that others have set is left alone; that of an earlier daemon is taken back")
    func others() throws {
        let tree = try tree(["u", "u/a", "u/a/one"])
        try tree["u"].set(.memoryLow, to: "4096")
        var slices = protection()
        let cgroup = try tree["u/a/one"]
        slices.protect(one, cgroup)
        #expect(try tree["u/a"].value(of: .memoryLow) == amount)
        let record = Record([
            Record.Line("own-cgroup", cgroup.path, "\(try cgroup.identifier())", slices.amount)
        ])
        let next = SliceProtection(journal: Journal(identifier: "test"))
        next.takeBack(Originals(record, in: tree.hierarchy))
        #expect(try tree["u"].value(of: .memoryLow) == "4096")
        #expect(try tree["u/a"].value(of: .memoryLow) == "0")
    }
}
