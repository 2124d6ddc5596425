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
}
