import Foundation
import Glibc
import TestSupport
import Testing

@testable import Linux

/// The rule of lifecycle.md § 2, "An application, its processes, its windows", on small trees of real processes. Each is
/// made by a Python program, whose first process is the main process unless it says otherwise.
@Suite(
    "Whether a cgroup is the application's own",
    .enabled(if: Machine.canMakeCgroups && Machine.hasPython, "needs root, a writable cgroup2 and python3"))
struct ApplicationCgroupTests {
    private let proc = Proc()

    /// What may be found.
    enum Outcome: Equatable {
        case own
        /// The processes of these names have to leave it.
        case shared([String])
        case foreign
        case no
    }

    struct Case: CustomTestStringConvertible {
        let name: String
        /// Which processes there are; each tells its name once it is at its place.
        let script: String
        let inUnit: Outcome
        let elsewhere: Outcome

        init(_ name: String, _ script: String, inUnit: Outcome, elsewhere: Outcome) {
            (self.name, self.script, self.inUnit, self.elsewhere) = (name, script, inUnit, elsewhere)
        }

        var testDescription: String { name }
    }

    static let cases = [
        Case("alone", "", inUnit: .own, elsewhere: .own),
        Case(
            "with children and their children", "fork('a', lambda: fork('b'))", inUnit: .own, elsewhere: .own),
        Case(
            "with a child in a session of its own", "fork('a', os.setsid)", inUnit: .own, elsewhere: .own),
        Case(
            "with an orphan in the same session, a crash handler", "orphan('a')", inUnit: .own,
            elsewhere: .foreign),
        Case(
            "with an orphan in a session of its own, a server, that has a child",
            "orphan('a', lambda: (os.setsid(), fork('b')))", inUnit: .shared(["a", "b"]),
            elsewhere: .foreign),
        Case(
            "with an orphan in a session of its own that owns a window", "orphan('window', os.setsid)",
            inUnit: .own, elsewhere: .foreign),
        Case(
            "with an orphan whose child owns a window",
            "orphan('a', lambda: (os.setsid(), fork('window')))", inUnit: .own, elsewhere: .foreign),
        Case(
            "with another application and its child", "fork('application', lambda: fork('b'))",
            inUnit: .shared(["application", "b"]), elsewhere: .foreign),
        Case(
            "with an orphan that is another application", "orphan('application')",
            inUnit: .shared(["application"]), elsewhere: .foreign),
        Case(
            "below a terminal", "fork('main', lambda: fork('a'))", inUnit: .foreign, elsewhere: .foreign),
        Case(
            "beside a program of the same terminal", "fork('main')\nfork('a')", inUnit: .foreign,
            elsewhere: .foreign),
        Case(
            "detached from a terminal", "orphan('a')\ntick()\norphan('main')", inUnit: .foreign,
            elsewhere: .foreign),
        Case(
            "with a child of another user", "fork('a', lambda: os.setuid(65534))", inUnit: .no,
            elsewhere: .foreign),
        Case(
            "with a child that may become root again", "fork('a', lambda: os.seteuid(65534))", inUnit: .no,
            elsewhere: .foreign),
    ]

    private static let prelude = """
        def tick():
            now = lambda: int(time.clock_gettime(time.CLOCK_BOOTTIME) * 100)
            former = now()
            while now() == former: pass
        def run(name, also):
            if also: also()
            say(name, os.getpid())
            while True: signal.pause()
        def fork(name, also=None):
            if os.fork() == 0: run(name, also)
        def orphan(name, also=None):
            if os.fork() == 0:
                parent = os.getpid()
                if os.fork() != 0: os._exit(0)
                while os.getppid() == parent: os.sched_yield()
                run(name, also)
            os.wait()
        say('on')
        sys.stdin.readline()

        """

    /// The processes of a script in a cgroup.
    private final class Scene {
        let home: TestCgroup
        let child: Child
        var processes: [String: ProcessIdentity] = [:]

        init(_ script: String, in name: String) throws {
            let base = try #require(TestCgroup.base)
            let suffix = "-\(UInt32.random(in: 1...(.max)))" + (name.hasPrefix("app") ? ".scope" : "")
            home = try TestCgroup(name + suffix, below: base)
            child = try Child(python: ApplicationCgroupTests.prelude + script + "\nrun('first', None)")
            _ = try child.line()
            try home.take(child.pid)
            child.tell("")
            let names = script.split(separator: "'").enumerated().filter { $0.offset % 2 == 1 }.map(\.element)
            for _ in 0...names.count {
                let words = try child.line().split(separator: " ").map(String.init)
                processes[words[0]] = try Proc().identity(of: #require(Int32(words[1])))
            }
        }

        var main: ProcessIdentity {
            processes["main"] ?? processes["first"] ?? ProcessIdentity(pid: 0, startTime: 0)
        }

        func judge(owner: UInt32 = geteuid(), daemon: Cgroup? = nil) -> ApplicationCgroup.Answer {
            let cgroups = ApplicationCgroup(hierarchy: home.cgroup.hierarchy, daemon: daemon, proc: Proc())
            let applications = Set([main, processes["application"]].compactMap { $0 })
            return cgroups.judge(main, owner: owner, applications: applications) { $0 == processes["window"] }
        }

        var outcome: Outcome {
            switch judge() {
            case .own(let cgroup): cgroup == home.cgroup ? .own : .no
            case .shared(_, let others):
                .shared(processes.filter { others.contains($0.value) }.map(\.key).sorted())
            case .foreign: .foreign
            case .no: .no
            }
        }
    }

    @Test("in a unit, and in a cgroup that is none", arguments: cases)
    func table(_ tree: Case) throws {
        #expect(try Scene(tree.script, in: "app").outcome == tree.inUnit)
        #expect(try Scene(tree.script, in: "other").outcome == tree.elsewhere)
    }

    @Test("a unit that Flatpak has made is the application's own, below its launcher, too")
    func sandbox() throws {
        let scene = try Scene("fork('main')\norphan('a', os.setsid)", in: "app-flatpak-org.example.App")
        #expect(scene.judge() == .own(scene.home.cgroup))
    }

    @Test("the unit counts, and a cgroup below it only if the unit is not the application's own")
    func below() throws {
        let scene = try Scene("fork('main')", in: "app")
        let below = try TestCgroup("below", below: scene.home.cgroup)
        defer { withExtendedLifetime(below) {} }
        try below.take(scene.main.pid)
        #expect(scene.judge() == .own(below.cgroup))
        let alone = try Scene("fork('a')", in: "app")
        let inner = try TestCgroup("below", below: alone.home.cgroup)
        defer { withExtendedLifetime(inner) {} }
        try inner.take(alone.main.pid)
        #expect(alone.judge() == .own(alone.home.cgroup))
    }

    @Test("a descendant that is elsewhere is not in the way, nor is one whose parent is elsewhere")
    func elsewhere() throws {
        let scene = try Scene("fork('a', lambda: fork('b'))", in: "other")
        let other = try TestCgroup()
        defer { withExtendedLifetime(other) {} }
        try other.take(try #require(scene.processes["a"]).pid)
        #expect(scene.judge() == .own(scene.home.cgroup))
    }

    @Test(
        "a process that moves in makes a cgroup foreign, or has to leave a unit", arguments: ["app", "other"])
    func stranger(in name: String) throws {
        let scene = try Scene("", in: name)
        let shell = try Child(["sh", "-c", "sleep 1000 & echo $!; wait"])
        let other = try shell.numbers()[0]
        let home = try TestCgroup()
        defer { withExtendedLifetime(home) {} }
        try scene.home.take(other)
        if name == "app" {
            let stranger = try proc.identity(of: other)
            #expect(scene.judge() == .shared(scene.home.cgroup, others: [stranger]))
        } else {
            #expect(scene.outcome == .foreign)
        }
        try home.take(other)
        #expect(scene.outcome == .own)
    }

    @Test("a directory of another user, a cgroup around the daemon, and a process that is gone are refused")
    func places() throws {
        let scene = try Scene("", in: "app")
        let why = "it belongs to user 0, the application to user 65534"
        #expect(scene.judge(owner: 65534) == .foreign("\(scene.home.cgroup): \(why)"))
        let around = ApplicationCgroup.Answer.foreign("\(scene.home.cgroup): appstated itself is in it")
        #expect(scene.judge(daemon: scene.home.cgroup) == around)
        let below = Cgroup(path: scene.home.cgroup.path + "/deep/er", in: scene.home.cgroup.hierarchy)
        #expect(scene.judge(daemon: below) == around)
        let beside = Cgroup(path: scene.home.cgroup.path + "x", in: scene.home.cgroup.hierarchy)
        #expect(scene.judge(daemon: beside) == .own(scene.home.cgroup))
        let former = ProcessIdentity(pid: scene.main.pid, startTime: scene.main.startTime + 1)
        scene.processes = ["first": former]
        #expect(scene.outcome == .no)
    }

    @Test(
        "a cgroup of many applications is never one application's own",
        arguments: ["session-c1.scope", "user@7.service", "init.scope", "app.slice"])
    func others(name: String) throws {
        let base = try #require(TestCgroup.base)
        let parent = try TestCgroup("judged-\(UInt32.random(in: 1...(.max)))", below: base)
        defer { withExtendedLifetime(parent) {} }
        let home = try TestCgroup(name, below: parent.cgroup)
        defer { withExtendedLifetime(home) {} }
        let child = try Child.idle()
        try home.take(child.pid)
        let cgroups = ApplicationCgroup(hierarchy: base.hierarchy, daemon: nil, proc: proc)
        let main = try proc.identity(of: child.pid)
        let answer = cgroups.judge(main, owner: geteuid(), applications: []) { _ in false }
        guard case .foreign = answer else {
            Issue.record("\(answer)")
            return
        }
    }

    @Test("a cgroup whose name is not UTF-8 hides no process")
    func hidden() throws {
        let scene = try Scene("", in: "other")
        let path = Array("\(scene.home.cgroup.directory)/".utf8).map { CChar(bitPattern: $0) } + [-1, 0]
        try #require(mkdir(path, 0o755) == 0)
        defer { rmdir(path) }
        #expect(scene.outcome == .foreign)
    }
}
