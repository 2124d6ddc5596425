import Foundation
import Glibc
import TestSupport
import Testing

@testable import Linux

@Suite("Cgroups, on made-up text")
struct CgroupNameTests {
    static let hierarchy = UnifiedHierarchy(mountPoint: "/cg")

    private func cgroup(_ path: String) throws -> Cgroup {
        try #require(Cgroup(path: path, in: Self.hierarchy))
    }

    @Test(
        "events are parsed",
        arguments: [
            ("populated 1\nfrozen 0\n", Cgroup.Events(isPopulated: true, isFrozen: false)),
            ("frozen 1\nnew 3\npopulated 0\n", Cgroup.Events(isPopulated: false, isFrozen: true)),
            ("populated 1\n", nil), ("", nil), ("populated\nfrozen\n", nil),
        ] as [(String, Cgroup.Events?)])
    func events(text: String, events: Cgroup.Events?) {
        #expect(Array(text.utf8).withUnsafeBytes { Cgroup.Events(parsing: $0) } == events)
    }

    @Test("a process's cgroup may be outside of the namespace, removed or missing")
    func places() throws {
        let tree = try MadeUpTree([
            "1/cgroup": "0::/../x\n", "2/cgroup": "0::/gone (deleted)\n", "3/cgroup": "9:cpu:/\n",
            "4/cgroup": "0::/here (deleted)\n", "mount/here (deleted)/cgroup.procs": "4\n0\n4\n",
        ])
        let proc = Proc(root: tree.root)
        let mount = UnifiedHierarchy(mountPoint: tree.root + "/mount")
        for (pid, number) in [(1, EXDEV), (2, ENOENT), (3, ENODATA), (5, ESRCH)] {
            #expect(failure { _ = try Cgroup.of(Int32(pid), in: mount, proc: proc) }?.errno == number)
        }
        let here = try Cgroup.of(4, in: mount, proc: proc)
        #expect(here.path == "/here (deleted)")
        #expect(try here.members().processes == [4])
        #expect(try here.members().unseen == 1)
    }
}

@Suite("Cgroups, real ones", .enabled(if: Machine.canMakeCgroups, "needs root and a writable cgroup2"))
struct CgroupTests {
    @Test("a cgroup is frozen by its own file, by an ancestor's, or by both")
    func freezer() throws {
        let own = try TestCgroup()
        let below = try TestCgroup("below", below: own.cgroup)
        let child = try Child.idle()
        try below.take(child.pid)
        let events = try CgroupEvents(below.cgroup)

        try below.cgroup.freeze()
        #expect(try awaited(events) { $0.isFrozen })
        #expect(try below.cgroup.wantsFrozen())
        #expect(try !below.isFrozenByAncestor)
        #expect(try !own.cgroup.wantsFrozen())

        try own.cgroup.freeze()
        #expect(try !below.isFrozenByAncestor)

        try below.cgroup.thaw()
        #expect(try !below.cgroup.wantsFrozen())
        #expect(try below.cgroup.isFrozen())
        #expect(try below.isFrozenByAncestor)

        try own.cgroup.thaw()
        #expect(try !below.isFrozenByAncestor)
        #expect(try awaited(events) { !$0.isFrozen })
    }
}
