import Foundation
import Glibc
import TestSupport
import Testing

@testable import Linux

private let hierarchy = UnifiedHierarchy(mountPoint: "/cg")
private let place = "/user.slice/user-7.slice/user@7.service/app.slice/app-x.scope"

private func owner(_ uid: UInt32, effective: UInt32? = nil) -> Proc.Owner {
    Proc.Owner(real: uid, effective: effective ?? uid, saved: effective ?? uid, filesystem: effective ?? uid)
}

/// A process that started at ten times its id unless stated otherwise.
private func process(
    _ pid: Int32, parent: Int32, startTime: UInt64? = nil, owner: Proc.Owner = owner(7)
) -> CgroupSnapshot.Process {
    CgroupSnapshot.Process(
        identity: ProcessIdentity(pid: pid, startTime: startTime ?? UInt64(pid) * 10), parent: parent,
        session: 10, owner: owner)
}

private func identity(_ pid: Int32) -> ProcessIdentity {
    ProcessIdentity(pid: pid, startTime: UInt64(pid) * 10)
}

/// The rule of lifecycle.md § 2, "Extent", case by case: process 10 is registered, of uid 7.
@Suite("The extent rule for cgroups, on made-up facts")
struct CgroupExtentTests {
    private func judge(
        _ members: [CgroupSnapshot.Process], at path: String = place, directory: UInt32 = 7,
        forebears: [CgroupSnapshot.Process] = [], outside: [ProcessIdentity] = [], unseen: Int = 0,
        isPartial: Bool = false, daemon: String = "/system.slice/appstated.service",
        registered: Set<Int32> = []
    ) throws -> CgroupExtent.Answer {
        let cgroup = try #require(Cgroup(path: path, in: hierarchy))
        let snapshot = CgroupSnapshot(
            cgroup: cgroup, directoryOwner: directory, members: members, forebears: forebears,
            outside: outside, unseen: unseen, isPartial: isPartial)
        return CgroupExtent.judge(
            snapshot, main: identity(10), owner: 7, daemon: Cgroup(path: daemon, in: hierarchy)
        ) { registered.contains($0.pid) }
    }

    static let main = process(10, parent: 1)

    @Test("a cgroup with only the application and its descendants is its own, in a unit or elsewhere")
    func own() throws {
        let family = [Self.main, process(11, parent: 10), process(12, parent: 11)]
        for path in [place, place + "/sub", "/user@7.service/app.slice/x.service", "/anything"] {
            #expect(try judge([Self.main], at: path) == .own(remainder: []))
            #expect(try judge(family, at: path) == .own(remainder: []))
        }
        // In any order of the ids.
        #expect(
            try judge([process(5, parent: 10, startTime: 400), Self.main]) == .own(remainder: []))
    }

    @Test("processes of the extent in other cgroups are reported")
    func remainder() throws {
        #expect(try judge([Self.main], outside: [identity(11)]) == .own(remainder: [identity(11)]))
    }

    @Test("a descent that leads through another cgroup counts")
    func forebears() throws {
        let family = [Self.main, process(12, parent: 11)]
        #expect(try judge(family, forebears: [process(11, parent: 10)]) == .own(remainder: []))
        #expect(
            try judge(family, at: "/anything", forebears: [process(11, parent: 1)])
                == .refused(.stranger(identity(12), parent: 11, session: 10)))
    }

    @Test(
        "places that belong to no single application are refused",
        arguments: [
            ("/", .rootCgroup), ("/user.slice/session-c1.scope", .sessionScope("session-c1.scope")),
            ("/user.slice", .notApplicationUnit("user.slice")),
            ("/user@7.service", .notApplicationUnit("user@7.service")),
            ("/user@7.service/init.scope", .notApplicationUnit("init.scope")),
        ] as [(String, CgroupExtent.Reason)])
    func places(path: String, reason: CgroupExtent.Reason) throws {
        #expect(try judge([Self.main], at: path) == .refused(reason))
    }

    @Test("a directory of another user is refused")
    func directory() throws {
        #expect(try judge([Self.main], directory: 0) == .refused(.directoryOf(0, not: 7)))
    }

    @Test("the daemon in or below the cgroup is a refusal, beside it is not")
    func daemon() throws {
        for path in [place, place + "/deep/er"] {
            let cgroup = try #require(Cgroup(path: path, in: hierarchy))
            #expect(try judge([Self.main], daemon: path) == .refused(.holdsDaemon(cgroup)))
        }
        #expect(try judge([Self.main], daemon: place + "x") == .own(remainder: []))
    }

    @Test("a main process that is elsewhere, has ended or whose id was reused is a refusal")
    func mainOutside() throws {
        #expect(try judge([]) == .refused(.mainOutside(identity(10))))
        let impostor = process(10, parent: 1, startTime: 999)
        #expect(try judge([impostor]) == .refused(.mainOutside(identity(10))))
    }

    @Test("a cgroup that cannot be seen completely is refused")
    func unseen() throws {
        #expect(try judge([Self.main], unseen: 2) == .refused(.unseenProcesses(2)))
        #expect(try judge([Self.main], isPartial: true) == .refused(.seenInPart))
    }

    @Test("processes of another user, setuid children and a main process of another uid are refused")
    func owners() throws {
        for other in [owner(0), owner(7, effective: 0), owner(8)] {
            let child = process(11, parent: 10, owner: other)
            #expect(
                try judge([Self.main, child]) == .refused(.otherOwner(identity(11), other, not: 7)))
            let main = process(10, parent: 1, owner: other)
            #expect(try judge([main]) == .refused(.otherOwner(identity(10), other, not: 7)))
        }
    }

    @Test("another registered process in the cgroup, or a descendant of one, is a refusal")
    func otherApplication() throws {
        let viewer = process(11, parent: 10)
        let below = process(12, parent: 11)
        #expect(
            try judge([Self.main, viewer, below], registered: [11])
                == .refused(.otherApplication(identity(11))))
        #expect(
            try judge([Self.main, below], forebears: [viewer], registered: [11])
                == .refused(.belowOtherApplication(identity(12), identity(11))))
        // A registered process from which the application itself descends is not part of its extent.
        let parent = process(9, parent: 1)
        let sibling = process(13, parent: 9)
        let child = process(10, parent: 9)
        #expect(try judge([child], forebears: [parent], registered: [9]) == .own(remainder: []))
        #expect(
            try judge([child, sibling], forebears: [parent], registered: [9])
                == .refused(.belowOtherApplication(identity(13), identity(9))))
        // The predicate would call the main process foreign.
        #expect(try judge([Self.main], registered: [10]) == .own(remainder: []))
    }

    @Test(
        "strangers, orphans, children of a reused id and circles are refused outside the application's unit")
    func strangers() throws {
        let orphan = process(20, parent: 1)
        #expect(
            try judge([Self.main, orphan], at: "/anything")
                == .refused(.stranger(identity(20), parent: 1, session: 10)))
        let old = process(8, parent: 10)
        #expect(
            try judge([old, Self.main], at: "/anything")
                == .refused(.stranger(identity(8), parent: 10, session: 10)))
        let circle = [process(30, parent: 31, startTime: 5), process(31, parent: 30, startTime: 5)]
        #expect(
            try judge([Self.main] + circle, at: "/anything")
                == .refused(.stranger(circle[0].identity, parent: 31, session: 10)))
        // In the application's own unit they are part of it.
        for path in [place, place + "/sub"] {
            #expect(try judge([Self.main, orphan, old] + circle, at: path) == .own(remainder: []))
        }
    }

    @Test(
        "a unit is not an application's own if another process in it started the application",
        arguments: [false, true])
    func terminal(throughAnother: Bool) throws {
        let terminal = process(5, parent: 1)
        let main = process(10, parent: throughAnother ? 7 : 5)
        #expect(
            try judge(
                [terminal, main, process(11, parent: 10)],
                forebears: throughAnother ? [process(7, parent: 5)] : [])
                == .refused(.stranger(identity(5), parent: 1, session: 10)))
    }
}

@Suite(
    "The extent rule for cgroups, on real processes",
    .enabled(if: Machine.canMakeCgroups && Machine.hasPython, "needs root, a writable cgroup2 and python3"))
struct RealCgroupExtentTests {
    let proc = Proc()

    private func judge(
        _ own: TestCgroup, _ main: ProcessIdentity, isForeign: (ProcessIdentity) -> Bool = { _ in false }
    ) throws -> CgroupExtent.Answer {
        let extent = Extent.members(of: main, proc: proc, isForeign: isForeign)
        let snapshot = try CgroupSnapshot(of: own.cgroup, extent: extent, proc: proc)
        return CgroupExtent.judge(
            snapshot, main: main, owner: geteuid(),
            daemon: try Cgroup.of(getpid(), in: own.cgroup.hierarchy), isForeign: isForeign)
    }

    @Test("a tree owns its cgroup; a part moved elsewhere is a remainder and is refused on its own")
    func tree() throws {
        let child = try Child(python: treeScript)
        let pids = try child.numbers()
        let main = try proc.identity(of: child.pid)
        let own = try TestCgroup()
        for pid in pids { try own.take(pid) }
        #expect(try judge(own, main) == .own(remainder: []))

        let branch = try proc.children(of: child.pid)[0]
        let apart = try TestCgroup()
        try apart.take(branch)
        #expect(try judge(own, main) == .own(remainder: [proc.identity(of: branch)]))
        #expect(try judge(apart, main) == .refused(.mainOutside(main)))

        let viewer = try proc.identity(of: branch)
        let below = try proc.identity(of: proc.children(of: branch).sorted()[0])
        #expect(try judge(own, main) { $0 == viewer } == .refused(.belowOtherApplication(below, viewer)))
        try own.take(branch)
        #expect(try judge(own, main) { $0 == viewer } == .refused(.otherApplication(viewer)))
    }

    @Test("a stranger that moves in makes a cgroup foreign until it leaves")
    func stranger() throws {
        let child = try Child.idle()
        let other = try Child.idle()
        let main = try proc.identity(of: child.pid)
        let own = try TestCgroup()
        let home = try TestCgroup()
        try own.take(child.pid)
        try own.take(other.pid)
        #expect(
            try judge(own, main)
                == .refused(
                    .stranger(proc.identity(of: other.pid), parent: getpid(), session: getsid(0))))
        try home.take(other.pid)
        #expect(try judge(own, main) == .own(remainder: []))
    }

    @Test("a stop affects an orphan in the application's unit, but not one in another cgroup")
    func affected() throws {
        let base = try #require(TestCgroup.base)
        for (name, isUnit) in [("app-affected-\(getpid()).scope", true), ("affected-\(getpid())", false)] {
            let own = try TestCgroup(name, below: base)
            let child = try Child(python: "say('on'); sys.stdin.readline()\n" + doubleForkScript)
            _ = try child.line()
            try own.take(child.pid)
            child.tell("")
            let orphan = try child.numbers()[0]
            let main = try proc.identity(of: child.pid)
            #expect(eventually { !proc.lineage(of: orphan).contains(main) })
            let found = Extent.affected(
                of: main, owner: geteuid(), hierarchy: own.cgroup.hierarchy, daemon: nil, proc: proc
            ) { _ in false }
            #expect(found.first == main)
            #expect(found.map(\.pid).contains(orphan) == isUnit, "\(name)")
            let other = try proc.identity(of: orphan)
            let others = Extent.affected(
                of: main, owner: geteuid(), hierarchy: own.cgroup.hierarchy, daemon: nil, proc: proc
            ) { $0 == other }
            #expect(!others.contains(other), "an application of its own")
        }
    }

    @Test("a cgroup whose name is not UTF-8 hides no process")
    func hidden() throws {
        let own = try TestCgroup()
        let child = try Child.idle()
        try own.take(child.pid)
        let path = Array("\(own.cgroup.directory)/".utf8).map { CChar(bitPattern: $0) } + [-1, 0]
        try #require(mkdir(path, 0o755) == 0)
        defer { rmdir(path) }
        #expect(try judge(own, proc.identity(of: child.pid)) == .refused(.seenInPart))
    }
}
