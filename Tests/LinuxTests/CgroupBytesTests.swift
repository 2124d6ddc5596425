import Glibc
import TestSupport
import Testing

@testable import Linux

/// Names of cgroups are bytes. Swift treats a slash, a dash or a dot followed by a combining mark as one character that
/// is no slash, and considers names that look the same equal.
@Suite("Cgroups by their bytes")
struct CgroupBytesTests {
    private static let hierarchy = UnifiedHierarchy(mountPoint: "/cg")
    static let marks = ["\u{301}", "\u{200D}", "\u{1F3FD}", "\u{E0001}", "\u{308}x"]

    private func cgroup(_ path: String) throws -> Cgroup {
        try #require(Cgroup(path: path, in: Self.hierarchy))
    }

    @Test("a combining mark after a slash begins a name", arguments: CgroupBytesTests.marks)
    func slashes(_ mark: String) throws {
        let deep = try cgroup("/a/\(mark)b/\(mark)")
        #expect(Array(deep.name.utf8) == Array(mark.utf8))
        #expect(try deep.parent == cgroup("/a/\(mark)b"))
        #expect(
            deep.ancestors.map { Array($0.path.utf8) } == ["/a/\(mark)b", "/a", "/"].map { Array($0.utf8) })
        #expect(try deep.isWithin(cgroup("/a")) && deep.isWithin(cgroup("/a/\(mark)b")))
        #expect(Cgroup(path: "/a//\(mark)", in: Self.hierarchy) == nil)
        #expect(Cgroup(path: "/a/../\(mark)", in: Self.hierarchy) == nil)
    }

    @Test("names that look the same are different cgroups")
    func lookalikes() throws {
        let (one, other) = (try cgroup("/app-\u{E9}.scope"), try cgroup("/app-e\u{301}.scope"))
        #expect(one != other)
        #expect(try !cgroup("/app-e\u{301}.scope/x").isWithin(one))
        #expect(Set([one, other]).count == 2)
    }

    @Test("a path that is not UTF-8 is refused: with replaced bytes it would name another cgroup")
    func notText() throws {
        let tree = try MadeUpTree(["8/task/8/stat": "8 (x) S 1\n"])
        let file = open(tree.root + "/8/cgroup", O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        #expect(file >= 0)
        let line = Array("0::/a/".utf8) + [0xFF, 0x0A]
        #expect(write(file, line, line.count) == line.count)
        close(file)
        let proc = Proc(root: tree.root)
        #expect(failure { _ = try proc.unifiedCgroup(of: 8) }?.errno == EILSEQ)
        #expect(failure { _ = try Cgroup.of(8, in: Self.hierarchy, proc: proc) }?.errno == EILSEQ)
    }

    @Test(
        "a real cgroup is found, frozen and thawed by its exact bytes",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)),
        arguments: ["app-\\\u{301}", "\u{301}app-test", "app-\u{200D} \\x"])
    func real(_ name: String) throws {
        let home = try TestCgroup(name)
        let child = try Child.idle()
        try home.take(child.pid)
        let found = try Cgroup.of(child.pid, in: home.cgroup.hierarchy)
        #expect(found == home.cgroup)
        try found.freeze()
        #expect(try home.cgroup.wantsFrozen())
        try found.thaw()
        #expect(try !home.cgroup.wantsFrozen())
    }
}
