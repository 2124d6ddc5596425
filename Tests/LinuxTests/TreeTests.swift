import Glibc
import TestSupport
import Testing

@testable import Linux

/// One after the other: a burst of signals in one test is a flood for the open trace of another.
@Suite("Signals", .serialized)
enum SignalTests {}

extension SignalTests {
    @Suite("Children, lineage and extent, on real processes")
    struct TreeTests {
        let proc = Proc()
        static let python = Machine.hasPython

        @Test(
            "children of all threads are found, and the scan finds the same",
            .enabled(if: python, "needs python3"))
        func children() throws {
            let child = try Child(
                python: """
                    import threading
                    def fork():
                        pid = os.fork()
                        if pid == 0: signal.pause()
                        return pid
                    mine = [fork(), fork()]
                    def other(): mine.append(fork()); say(*mine); hold()
                    threading.Thread(target=other).start()
                    """)
            let expected = try child.numbers().sorted()
            #expect(expected.count == 3)
            let found = proc.children(of: try proc.identity(of: child.pid))
            #expect(found.map(\.pid).sorted() == expected)
            #expect(try proc.children(of: child.pid) == expected)
            #expect(proc.children(of: try proc.identity(of: expected[0])) == [])
        }

        @Test("the lineage is the process and its ancestors, up to the last one before process 1")
        func lineage() throws {
            let child = try Child(["sh", "-c", "exec 3<&0; cat <&3 & echo $!; wait"])
            let grandchild = try child.numbers()[0]
            let line = proc.lineage(of: grandchild)
            #expect(line.prefix(3).map(\.pid) == [grandchild, child.pid, getpid()])
            #expect(try line[2] == proc.identity(of: getpid()))
            #expect(!line.contains { $0.pid <= 1 })
            #expect(proc.lineage(of: grandchild, limit: 2).count == 2)
            #expect(proc.lineage(of: 1) == [])
        }

        @Test(
            "an extent is the whole tree, parents first, and stops at a foreign process",
            .enabled(if: python, "needs python3"))
        func extent() throws {
            let child = try Child(python: treeScript)
            let tree = try child.numbers()
            #expect(tree.count == 7)
            let main = try proc.identity(of: child.pid)
            let all = Extent.members(of: main, proc: proc) { _ in false }
            #expect(all.first == main)
            #expect(Set(all.map(\.pid)) == Set(tree))
            for (index, member) in all.enumerated().dropFirst() {
                let parent = try proc.stat(member.pid).parent
                #expect(all[..<index].contains { $0.pid == parent })
            }
            let foreign = all[1]
            let below = Extent.members(of: foreign, proc: proc) { _ in false }
            #expect(below.count == 3)
            let rest = Extent.members(of: main, proc: proc) { $0 == foreign }
            #expect(Set(rest) == Set(all).subtracting(below))
        }

        @Test("SIGKILL ends the extent and spares foreign processes", .enabled(if: python, "needs python3"))
        func killExtent() throws {
            let child = try Child(python: treeScript)
            _ = try child.numbers()
            let main = try proc.identity(of: child.pid)
            let all = Extent.members(of: main, proc: proc) { _ in false }
            let spared = Extent.members(of: all[1], proc: proc) { _ in false }
            let stop = SignalStop(proc: proc, main: main, owner: getuid())
            #expect(stop.kill { $0 == all[1] }.last == main)
            #expect(stop.failures == [])
            for member in all where !spared.contains(member) {
                #expect(eventually { isGone(member) })
            }
            for member in spared { #expect(!isGone(member)) }
        }

        private func isGone(_ identity: ProcessIdentity) -> Bool {
            guard let stat = try? proc.stat(identity.pid), stat.startTime == identity.startTime else {
                return true
            }
            return stat.state == .zombie || stat.state == .dead
        }
    }
}

/// The processes of a process group that are not zombies.
func livingMembers(ofGroup group: Int32) throws -> [Proc.Stat] {
    let proc = Proc()
    return try proc.processes().compactMap { try? proc.stat($0) }
        .filter { getpgid($0.pid) == group && $0.state != .zombie && $0.state != .dead }
}

/// The main process and two children with two children each: prints the seven ids.
let treeScript = """
    ids = [os.getpid()]
    def branch(depth):
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            mine = [os.getpid()]
            if depth > 1:
                for i in range(2): mine += branch(depth - 1)
            os.write(w, (" ".join(map(str, mine)) + "\\n").encode())
            while True: signal.pause()
        return [int(n) for n in os.read(r, 400).split()]
    for i in range(2): ids += branch(2)
    say(*ids)
    while True: signal.pause()
    """

/// Prints a line once it is at work, then forks some 400 processes in three layers, prints "end" and waits.
let spawnerScript = """
    for i in range(100):
        if os.fork() == 0:
            for j in range(3):
                if os.fork() == 0:
                    while True: signal.pause()
            while True: signal.pause()
        if i == 5: say('on')
    say('end')
    while True: signal.pause()
    """

/// The main process; a child that is set to another user; its child, which is wholly root's again; another child of the
/// main process: prints the four ids.
let otherOwnerScript = """
    r, w = os.pipe()
    first = os.fork()
    if first == 0:
        os.seteuid(65534)
        second = os.fork()
        if second == 0:
            os.seteuid(0)
            os.write(w, b'x')
            while True: signal.pause()
        os.write(w, ("%d\\n" % second).encode())
        while True: signal.pause()
    got = b''
    while b'x' not in got or b'\\n' not in got: got += os.read(r, 100)
    third = os.fork()
    if third == 0:
        while True: signal.pause()
    say(os.getpid(), first, int(got.replace(b'x', b'')), third)
    while True: signal.pause()
    """
