import Foundation
import Glibc
import TestSupport
import Testing

@testable import Linux

@Suite("The ledger of resources, on real processes")
struct LedgerTests {
    let proc = Proc()
    static let python = Machine.hasPython
    /// Restoring a nice value lowers it.
    static let canLower = hasCapability(23)
    static let whatIsMissing: Comment = "needs CAP_SYS_NICE and python3"
    private let background = ResourceRow(oomScoreAdjust: 200, nice: 7, ioClass: .idle)
    private let suspended = ResourceRow(oomScoreAdjust: 900, nice: 7, ioClass: .idle)
    private let idle = IOPriority(.idle).rawValue

    private func ledger(_ child: Child) throws -> ResourceLedger {
        ResourceLedger(proc: proc, main: try proc.identity(of: child.pid), owner: getuid())
    }

    /// The current nice value, I/O priority and score of a process.
    private func values(_ pid: Int32) throws -> [Int32] {
        [
            try Niceness.read(pid), try IOPriority.read(pid).rawValue,
            try OOMScoreAdjustment.read(pid, proc: proc),
        ]
    }

    private func nobody(_: ProcessIdentity) -> Bool { false }

    @Test("a row is applied and undone", .enabled(if: canLower, "needs CAP_SYS_NICE"))
    func putBack() throws {
        let child = try Child.idle()
        let own = try values(child.pid)
        var ledger = try ledger(child)
        ledger.apply(background, isForeign: nobody)
        #expect(try values(child.pid) == [own[0] + 7, idle, own[2] + 200])
        ledger.apply(suspended, isForeign: nobody)
        #expect(try values(child.pid) == [own[0] + 7, idle, own[2] + 900])
        ledger.apply(ResourceRow(), isForeign: nobody)
        #expect(try values(child.pid) == own)
        ledger.apply(background, isForeign: nobody)
        #expect(try values(child.pid) == [own[0] + 7, idle, own[2] + 200])
        ledger.putBack(isForeign: nobody)
        #expect(try values(child.pid) == own)
        #expect(ledger.isEmpty)
        #expect(ledger.takeNotes() == [])
    }

    @Test("a value that another process has changed is left alone and reported once")
    func renice() throws {
        let child = try Child.idle()
        let own = try values(child.pid)
        var ledger = try ledger(child)
        ledger.apply(background, isForeign: nobody)
        #expect(setpriority(__priority_which_t(PRIO_PROCESS.rawValue), id_t(child.pid), 19) == 0)
        ledger.apply(ResourceRow(), isForeign: nobody)
        // The other values are still ours to restore.
        #expect(try values(child.pid) == [19, own[1], own[2]])
        let notes = ledger.takeNotes()
        #expect(notes.count == 1)
        guard case .changedByOthers(.nice, _, from: own[0] + 7, to: 19)? = notes.first else {
            Issue.record("\(notes)")
            return
        }
        // Permanently, even if the value equals ours again later.
        ledger.apply(ResourceRow(nice: 3), isForeign: nobody)
        #expect(try values(child.pid)[0] == 19)
        ledger.putBack(isForeign: nobody)
        #expect(try values(child.pid) == [19, own[1], own[2]])
        #expect(ledger.takeNotes() == [])
    }

    @Test(
        "every thread, including new ones, gets our value, and its own back at the end",
        .enabled(if: canLower && python, whatIsMissing))
    func threads() throws {
        let child = try Child(python: threadScript)
        let first = try #require(try child.numbers().first)
        let own = try Niceness.read(child.pid)
        #expect(setpriority(__priority_which_t(PRIO_PROCESS.rawValue), id_t(first), own + 2) == 0)
        var ledger = try ledger(child)
        ledger.apply(background, isForeign: nobody)
        #expect(try Niceness.read(child.pid) == own + 7)
        #expect(try Niceness.read(first) == own + 9)
        // It inherits our value, which is not its own.
        child.tell("thread")
        let second = try #require(try child.numbers().first)
        #expect(try Niceness.read(second) == own + 7)
        ledger.apply(suspended, isForeign: nobody)
        #expect(try Niceness.read(second) == own + 7)
        ledger.putBack(isForeign: nobody)
        #expect(try [child.pid, first, second].map { try Niceness.read($0) } == [own, own + 2, own])
        #expect(try IOPriority.read(second) == IOPriority.read(child.pid))
        #expect(ledger.takeNotes() == [])
    }

    @Test(
        "a child that inherits our value gets its parent's own value back, and nothing is added twice",
        .enabled(if: canLower && python, whatIsMissing))
    func newChild() throws {
        let child = try Child(python: threadScript)
        _ = try child.numbers()
        let own = try values(child.pid)
        var ledger = try ledger(child)
        ledger.apply(background, isForeign: nobody)
        child.tell("child")
        let born = try #require(try child.numbers().first)
        #expect(try values(born) == [own[0] + 7, idle, own[2] + 200])
        ledger.apply(suspended, isForeign: nobody)
        #expect(try values(born) == [own[0] + 7, idle, own[2] + 900])
        ledger.apply(ResourceRow(), isForeign: nobody)
        #expect(try values(born) == own)
        // A child that was not examined before the end.
        ledger.apply(background, isForeign: nobody)
        child.tell("child")
        let last = try #require(try child.numbers().first)
        ledger.putBack(isForeign: nobody)
        #expect(try values(last) == own)
        #expect(try values(born) == own)
        #expect(ledger.takeNotes() == [])
    }

    @Test(
        "a child's own value is added to if we have changed nothing so far, else it is left alone",
        .enabled(if: canLower && python, whatIsMissing))
    func ownValue() throws {
        let child = try Child(python: threadScript)
        // Where the tests run with a high nice value, the sums would exceed 19.
        for thread in try child.numbers() + [child.pid] {
            #expect(setpriority(__priority_which_t(PRIO_PROCESS.rawValue), id_t(thread), 0) == 0)
        }
        let own = try Niceness.read(child.pid)
        var ledger = try ledger(child)
        ledger.apply(background, isForeign: nobody)
        child.tell("child 4")
        let nicer = try #require(try child.numbers().first)
        ledger.apply(ResourceRow(), isForeign: nobody)
        #expect(try Niceness.read(nicer) == own + 11)
        #expect(
            try ledger.takeNotes() == [
                .ownValue(.nice, of: "process \(proc.identity(of: nicer))", own + 11)
            ])
        child.tell("child 4")
        let other = try #require(try child.numbers().first)
        ledger.apply(background, isForeign: nobody)
        #expect(try Niceness.read(other) == own + 11)
        ledger.putBack(isForeign: nobody)
        #expect(try Niceness.read(other) == own + 4)
        #expect(try Niceness.read(nicer) == own + 11)
    }

    @Test(
        "a process that leaves the extent gets its own values back",
        .enabled(if: canLower && python, whatIsMissing))
    func departed() throws {
        let child = try Child(python: threadScript)
        _ = try child.numbers()
        let own = try values(child.pid)
        child.tell("child")
        let pid = try #require(try child.numbers().first)
        let inner = try proc.identity(of: pid)
        var ledger = try ledger(child)
        ledger.apply(background, isForeign: nobody)
        #expect(try values(pid) == [own[0] + 7, idle, own[2] + 200])
        #expect(ledger.contains(inner))
        ledger.apply(background) { $0 == inner }
        #expect(try values(pid) == own)
        #expect(!ledger.contains(inner))
        #expect(try values(child.pid) == [own[0] + 7, idle, own[2] + 200])
    }

    @Test(
        "descendants whose main process has ended get their own values back",
        .enabled(if: canLower && python, whatIsMissing))
    func orphans() throws {
        let child = try Child(python: threadScript)
        _ = try child.numbers()
        let own = try values(child.pid)
        child.tell("child")
        let orphan = try #require(try child.numbers().first)
        var ledger = try ledger(child)
        ledger.apply(suspended, isForeign: nobody)
        kill(child.pid, SIGKILL)
        try child.reap()
        ledger.putBack(isForeign: nobody)
        #expect(try values(orphan) == own)
        #expect(ledger.isEmpty)
    }

    @Test(
        "a set-user-ID child and its descendants are never touched; EPERM is reported once",
        .enabled(if: Machine.isRoot && python, "needs root and python3"))
    func setUserID() throws {
        let child = try Child(
            python: """
                pid = os.fork()
                if pid == 0:
                    os.setresuid(65534, 0, 0)
                    inner = os.fork()
                    if inner == 0: os.setresuid(0, 0, 0)
                    say(os.getpid())
                    while True: signal.pause()
                hold()
                """)
        let pids = [try child.line(), try child.line()].compactMap { Int32($0) }
        let own = try values(child.pid)
        var ledger = try ledger(child)
        ledger.apply(background, isForeign: nobody)
        #expect(try values(child.pid)[0] == own[0] + 7)
        for pid in pids { #expect(try values(pid) == own) }
        let notes = ledger.takeNotes()
        guard notes.count == 1, case .failed(let failure)? = notes.first else {
            Issue.record("\(notes)")
            return
        }
        #expect(failure.errno == EPERM)
        ledger.apply(suspended, isForeign: nobody)
        #expect(ledger.takeNotes() == [])
    }

    @Test(
        "a process that temporarily cannot be examined is not forgotten",
        .enabled(if: canLower, "needs CAP_SYS_NICE"))
    func unreadable() throws {
        let tree = try MadeUpTree(["nothing": ""])
        let root = tree.root + "/proc"
        #expect(symlink("/proc", root) == 0)
        let child = try Child.idle()
        let own = try values(child.pid)
        var ledger = ResourceLedger(
            proc: Proc(root: root), main: try proc.identity(of: child.pid), owner: getuid())
        ledger.apply(background, isForeign: nobody)
        // Every file gives ELOOP.
        #expect(unlink(root) == 0 && symlink(root, root) == 0)
        ledger.apply(suspended, isForeign: nobody)
        #expect(try values(child.pid)[2] == own[2] + 200)
        #expect(unlink(root) == 0 && symlink("/proc", root) == 0)
        ledger.putBack(isForeign: nobody)
        #expect(try values(child.pid) == own)
    }

    // MARK: Across a crash

    @Test(
        "a later ledger continues with what an earlier one left",
        .enabled(if: canLower && python, whatIsMissing))
    func adopt() throws {
        let child = try Child(python: threadScript)
        let thread = try #require(try child.numbers().first)
        let main = try proc.identity(of: child.pid)
        let own = try values(child.pid)
        var first = try ledger(child)
        var written: [String] = []
        first.apply(background, isForeign: nobody) { written = $0.entries }
        #expect(written == first.entries)
        #expect(written.contains("nice \(main.pid):\(main.startTime) \(own[0]) \(own[0] + 7)"))
        #expect(written.contains { $0.hasPrefix("io \(main.pid):\(main.startTime)/\(thread):") })
        #expect(written.count == 5)

        var second = try ledger(child)
        second.adopt(written + ["", "nice", "nice 1:x 0 7", "colour 1:1 0 7", "nice 0:0 0 7 9"])
        #expect(second.entries == written)
        second.apply(suspended, isForeign: nobody)
        #expect(try values(child.pid) == [own[0] + 7, idle, own[2] + 900])
        second.putBack(isForeign: nobody)
        #expect(try values(child.pid) == own)
        #expect(try Niceness.read(thread) == own[0])
    }

    @Test(
        "a value that was saved but never applied does not count as another process's change",
        .enabled(if: canLower, whatIsMissing))
    func crashBeforeWriting() throws {
        let child = try Child.idle()
        let main = try proc.identity(of: child.pid)
        let own = try values(child.pid)
        var ledger = try ledger(child)
        ledger.adopt(["nice \(main.pid):\(main.startTime) \(own[0]) \(own[0] + 7)"])
        #expect(ledger.entries == [])
        ledger.apply(background, isForeign: nobody)
        #expect(try values(child.pid)[0] == own[0] + 7)
        ledger.putBack(isForeign: nobody)
        #expect(try values(child.pid) == own)
    }

    @Test(
        "the entries before a change and after it together tell what is ours, whatever was written",
        .enabled(if: canLower, whatIsMissing), arguments: [false, true])
    func betweenRecordAndWrites(_ toFront: Bool) throws {
        let child = try Child.idle()
        let own = try values(child.pid)
        var first = try ledger(child)
        first.apply(background, isForeign: nobody)
        var next = first
        let row = toFront ? ResourceRow() : suspended
        _ = next.plan(row, isForeign: nobody)
        var second = try ledger(child)
        second.adopt(Set(first.entries).union(next.entries).sorted())
        #expect(second.entries == first.entries)
        second.apply(row, isForeign: nobody)
        #expect(try values(child.pid) == (toFront ? own : [own[0] + 7, idle, own[2] + 900]))
        var third = try ledger(child)
        third.adopt(Set(first.entries).union(next.entries).sorted())
        third.putBack(isForeign: nobody)
        #expect(try values(child.pid) == own)
        #expect(third.takeNotes() == [])
    }

    @Test(
        "the same for the weights of two cgroups: the former one gets its own weight back",
        arguments: [["100", "300"], ["20", "300"], ["100", "20"]])
    func betweenTwoCgroups(_ present: [String]) throws {
        let tree = try MadeUpTree(["a/cpu.weight": "100\n", "b/cpu.weight": "300\n"])
        let child = try Child.idle()
        var first = try ledger(child)
        let row = ResourceRow(cpuWeight: 20)
        first.apply(row, cgroup: tree.root + "/a", isForeign: nobody)
        var next = first
        _ = next.plan(row, cgroup: tree.root + "/b", isForeign: nobody)
        try tree.write(present[0] + "\n", to: "a/cpu.weight")
        try tree.write(present[1] + "\n", to: "b/cpu.weight")
        var second = try ledger(child)
        second.adopt(Set(first.entries).union(next.entries).sorted())
        second.apply(row, cgroup: tree.root + "/b", isForeign: nobody)
        #expect(try tree.text("a/cpu.weight").hasPrefix("100"))
        #expect(try tree.text("b/cpu.weight").hasPrefix("20"))
        second.putBack(isForeign: nobody)
        #expect(try tree.text("b/cpu.weight").hasPrefix("300"))
        #expect(second.takeNotes() == [])
    }

    @Test("a value that another process has changed stays, before the crash and after it")
    func foreignAcrossCrash() throws {
        let child = try Child.idle()
        let main = try proc.identity(of: child.pid)
        var first = try ledger(child)
        let own = try Niceness.read(child.pid)
        first.apply(ResourceRow(nice: 7), isForeign: nobody)
        #expect(setpriority(__priority_which_t(PRIO_PROCESS.rawValue), id_t(child.pid), 15) == 0)
        var second = try ledger(child)
        second.adopt(first.entries)
        #expect(second.entries == ["nice \(main.pid):\(main.startTime) \(own) -"])
        var third = try ledger(child)
        third.adopt(second.entries)
        third.apply(ResourceRow(nice: 3), isForeign: nobody)
        third.putBack(isForeign: nobody)
        #expect(try Niceness.read(child.pid) == 15)
    }

    // MARK: Its own cgroup

    @Test("an application with its own cgroup has weights, and its threads keep their own values")
    func weights() throws {
        let tree = try MadeUpTree(["app/cpu.weight": "150\n", "app/io.weight": "default 100\n8:0 50\n"])
        let child = try Child.idle()
        let own = try values(child.pid)
        let row = ResourceRow(cpuWeight: 20, ioWeight: 30, oomScoreAdjust: 200, nice: 7, ioClass: .idle)
        var ledger = try ledger(child)
        ledger.apply(row, cgroup: tree.root + "/app", isForeign: nobody)
        #expect(try values(child.pid) == [own[0], own[1], own[2] + 200])
        #expect(try tree.text("app/cpu.weight") == "20")
        #expect(try tree.text("app/io.weight") == "default 30")
        var second = try self.ledger(child)
        second.adopt(ledger.entries)
        #expect(second.entries == ledger.entries)
        #expect(second.entries.count == 3)
        second.apply(ResourceRow(), cgroup: tree.root + "/app", isForeign: nobody)
        #expect(try tree.text("app/cpu.weight") == "150")
        second.apply(row, cgroup: tree.root + "/app", isForeign: nobody)
        second.putBack(isForeign: nobody)
        #expect(try tree.text("app/cpu.weight") == "150")
        #expect(try tree.text("app/io.weight") == "default 100")
        #expect(second.takeNotes() == [])
    }

    @Test(
        "a limit of processor time is set and removed again; the application's own limit stays",
        arguments: [
            ("max 100000\n", "20000 100000", "max"), ("50000 20000\n", "50000 20000\n", "50000 20000\n"),
        ])
    func quota(_ own: String, _ limited: String, _ after: String) throws {
        let tree = try MadeUpTree(["app/cpu.max": own])
        let child = try Child.idle()
        var ledger = try ledger(child)
        ledger.apply(ResourceRow(cpuQuota: 20), cgroup: tree.root + "/app", isForeign: nobody)
        #expect(try tree.text("app/cpu.max") == limited)
        var second = try self.ledger(child)
        second.adopt(ledger.entries)
        #expect(second.entries == ledger.entries)
        if own != limited { try tree.write(limited + "\n", to: "app/cpu.max") }
        second.putBack(isForeign: nobody)
        #expect(try tree.text("app/cpu.max") == after)
        #expect(second.takeNotes() == [])
    }

    @Test(
        "memory is protected and released; a higher value of its own, or of another process, stays",
        arguments: ["0\n", "4096\n", "max\n"])
    func protection(_ own: String) throws {
        let tree = try MadeUpTree(["app/memory.low": own, "bare/cgroup.procs": ""])
        let child = try Child.idle()
        var ledger = try ledger(child)
        let row = ResourceRow(memoryLow: 2_000)
        let ours = "\(Int(CgroupShares.pages(2_000)) * Int(getpagesize()))"
        #expect(CgroupShares.pages(10_000) > 5 * CgroupShares.pages(1_999))
        ledger.apply(row, cgroup: tree.root + "/app", isForeign: nobody)
        #expect(try tree.text("app/memory.low") == (own == "max\n" ? own : ours))
        #expect(ledger.protectedCgroup == (own == "max\n" ? nil : tree.root + "/app"))
        var second = try self.ledger(child)
        second.adopt(ledger.entries)
        #expect(second.entries == ledger.entries && second.protectedCgroup == ledger.protectedCgroup)
        second.apply(ResourceRow(), cgroup: tree.root + "/app", isForeign: nobody)
        #expect(try tree.text("app/memory.low") == (own == "max\n" ? own : String(own.dropLast())))
        #expect(second.protectedCgroup == nil && second.takeNotes() == [])

        second.apply(row, cgroup: tree.root + "/app", isForeign: nobody)
        try tree.write("8192\n", to: "app/memory.low")
        second.apply(row, cgroup: tree.root + "/app", isForeign: nobody)
        second.putBack(isForeign: nobody)
        #expect(try tree.text("app/memory.low") == "8192\n" && second.takeNotes().count == 1)
        // Where there is no memory controller.
        second.apply(row, cgroup: tree.root + "/bare", isForeign: nobody)
        #expect(second.protectedCgroup == nil && second.takeNotes().count == 1)
    }

    @Test("a weight that another process has set is left alone")
    func foreignWeight() throws {
        let tree = try MadeUpTree(["app/cpu.weight": "100\n", "app/io.weight": "default 100\n"])
        let child = try Child.idle()
        var ledger = try ledger(child)
        let row = ResourceRow(cpuWeight: 20, ioWeight: 30)
        ledger.apply(row, cgroup: tree.root + "/app", isForeign: nobody)
        try tree.write("500\n", to: "app/cpu.weight")
        ledger.apply(ResourceRow(cpuWeight: 40), cgroup: tree.root + "/app", isForeign: nobody)
        ledger.putBack(isForeign: nobody)
        #expect(try tree.text("app/cpu.weight") == "500\n")
        #expect(try tree.text("app/io.weight") == "default 100")
        #expect(ledger.takeNotes().count == 1)
    }

    @Test("a cgroup that is no longer the application's own gets its weights back; the next one gets ours")
    func otherCgroup() throws {
        let tree = try MadeUpTree(["a/cpu.weight": "100\n", "b/cpu.weight": "300\n"])
        let child = try Child.idle()
        var ledger = try ledger(child)
        let row = ResourceRow(cpuWeight: 20)
        ledger.apply(row, cgroup: tree.root + "/a", isForeign: nobody)
        ledger.apply(row, cgroup: tree.root + "/b", isForeign: nobody)
        #expect(try tree.text("a/cpu.weight") == "100")
        #expect(try tree.text("b/cpu.weight") == "20")
        ledger.apply(row, isForeign: nobody)
        #expect(try tree.text("b/cpu.weight") == "300")
        #expect(ledger.isEmpty)
    }

    @Test("a cgroup without a controller is reported once, and a removed cgroup is forgotten")
    func lacking() throws {
        let tree = try MadeUpTree(["app/cpu.weight": "100\n"])
        let child = try Child.idle()
        var ledger = try ledger(child)
        let row = ResourceRow(cpuWeight: 20, ioWeight: 30)
        ledger.apply(row, cgroup: tree.root + "/app", isForeign: nobody)
        ledger.apply(row, cgroup: tree.root + "/app", isForeign: nobody)
        #expect(try tree.text("app/cpu.weight") == "20")
        #expect(ledger.takeNotes().count == 1)
        try FileManager.default.removeItem(atPath: tree.root + "/app")
        ledger.putBack(isForeign: nobody)
        #expect(ledger.takeNotes() == [])
    }
}

extension ResourceLedger {
    /// Gives the application what the row says.
    ///
    /// - Parameter writeDown: called with the future ledger before anything is written.
    fileprivate mutating func apply(
        _ row: ResourceRow, cgroup: String? = nil, isForeign: (ProcessIdentity) -> Bool,
        writeDown: (ResourceLedger) -> Void = { _ in }
    ) {
        let changes = plan(row, cgroup: cgroup, memoryCgroup: cgroup, isForeign: isForeign)
        if changes.isEmpty { return }
        writeDown(self)
        carryOut(changes)
    }
}
