import Foundation
import Glibc
import TestSupport
import Testing

@testable import Linux

@Suite("Amount and owners of memory")
struct MemoryTests {
    @Test("meminfo of a made-up tree is read; missing values are reported")
    func madeUp() throws {
        let lines = ["MemTotal: 2048 kB", "MemFree: 7 kB", "MemAvailable: 1024 kB", "SwapTotal: 0 kB"]
        let tree = try MadeUpTree([
            "meminfo": (lines + ["SwapFree: 0 kB", "Zswap: 1 kB", ""]).joined(separator: "\n"),
            "old/meminfo": lines.joined(separator: "\n"),
        ])
        let expected = MemoryInfo.Figures(total: 2 << 20, available: 1 << 20, swapTotal: 0, swapFree: 0)
        #expect(try MemoryInfo(root: tree.root).read() == expected)
        #expect(failure { _ = try MemoryInfo(root: tree.root + "/old").read() }?.errno == EBADMSG)
        #expect(failure { _ = try MemoryInfo(root: tree.root + "/none") }?.isNoSuchFile == true)
    }

    @Test("the pages on the CPUs' own lists are counted, on this machine and in a made-up tree")
    func cpuLists() throws {
        let all = try MemoryInfo().read().total
        #expect(try CPUPageLists().read() < all)
        let zone = """
            Node 0, zone   Normal
              pages free     48307
                    min      24
              pagesets
                cpu: 0
                          count:    3
                          high:     100
                cpu: 1
                          count:    4
                          high:     100
              vm stats threshold: 4

            """
        let tree = try MadeUpTree(["zoneinfo": zone + zone])
        #expect(try CPUPageLists(root: tree.root).read() == 14 * UInt64(getpagesize()))
        #expect(failure { _ = try CPUPageLists(root: tree.root + "/none") }?.isNoSuchFile == true)
    }

    @Test("counters of file pages are read from a made-up tree; missing values are reported")
    func fileCache() throws {
        let lines = [
            "nr_free_pages 9", "nr_zone_inactive_file 99", "nr_inactive_anon 9", "nr_inactive_file 3",
            "nr_active_file 4", "workingset_nodes 9", "workingset_refault_anon 9",
            "workingset_refault_file 5",
            "workingset_activate_file 9", "allocstall_dma32 2", "allocstall_movable 1", "pgsteal_kswapd 10",
            "pgsteal_direct 20", "pgsteal_khugepaged 40", "pgsteal_proactive 9", "pgscan_kswapd 9",
            "pgscan_direct 8", "pgscan_direct_throttle 9", "pgsteal_anon 9", "pgsteal_file 6", "oom_kill 9",
        ]
        func text(_ change: (String) -> String?) -> String {
            lines.compactMap(change).joined(separator: "\n") + "\n"
        }
        var files = ["vmstat": text { $0 }]
        files["old/vmstat"] = text { $0.replacingOccurrences(of: "refault_file", with: "refault") }
        let needed = [
            "nr_inactive_file", "nr_active_file", "workingset_refault_file", "pgsteal_file", "pgsteal_kswapd",
            "pgsteal_direct", "pgscan_direct",
        ]
        let isRecent = { (line: String) in line.hasPrefix("pgsteal_k") && !line.hasPrefix("pgsteal_kswapd") }
        files["6.1/vmstat"] = text { isRecent($0) ? nil : $0 }
        for name in needed { files["\(name)/vmstat"] = text { $0.hasPrefix(name + " ") ? nil : $0 } }
        files["broken/vmstat"] = text { $0 == "pgsteal_file 6" ? "pgsteal_file x" : $0 }
        let tree = try MadeUpTree(files)
        let page = UInt64(getpagesize())
        var expected = FileCacheCounters.Figures(
            cached: 7 * page, evicted: 6 * page, reclaimed: 70 * page, refaulted: 5 * page, searches: 11)
        #expect(try FileCacheCounters(root: tree.root).read() == expected)
        #expect(try FileCacheCounters(root: tree.root + "/old").read() == expected)
        expected.reclaimed = 30 * page
        #expect(try FileCacheCounters(root: tree.root + "/6.1").read() == expected)
        for name in needed + ["broken"] {
            #expect(
                failure { _ = try FileCacheCounters(root: "\(tree.root)/\(name)").read() }?.errno == EBADMSG)
        }
        #expect(failure { _ = try FileCacheCounters(root: tree.root + "/none") }?.isNoSuchFile == true)
    }

    @Test(
        "a file larger than its reader's limit is evicted and read back, but not for lack of the machine's memory",
        .enabled(if: Machine.canLimitMemory && Machine.hasPython, "needs a memory limit and python3"))
    func thrashing() throws {
        let counters = try FileCacheCounters()
        let tree = try MadeUpTree(["mark": ""], isOnDisk: true)
        let limit = try MemoryLimit(bytes: 16 << 20)
        let child = try Child(
            python: """
                file = os.open("\(tree.root)/large", os.O_RDWR | os.O_CREAT)
                for _ in range(64): os.write(file, b"x" * (1 << 20))
                os.fsync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                say("written")
                while sys.stdin.readline():
                    for block in range(0, 64 << 20, 1 << 20): os.pread(file, 1 << 20, block)
                    say("read")
                """)
        _ = try child.line()
        try limit.take(child.pid)
        child.tell("go")
        _ = try child.line()
        let before = try counters.read()
        var after = before
        // The kernel may forget for some pages that they were evicted.
        for _ in 0..<50 where after.refaulted < before.refaulted + 32 << 20 {
            child.tell("go")
            _ = try child.line()
            after = try counters.read()
        }
        #expect(after.evicted >= before.evicted + 32 << 20 && after.refaulted >= before.refaulted + 32 << 20)
        #expect(after.cached > 0)
        #expect(after.reclaimed - before.reclaimed < after.evicted - before.evicted)
    }

    @Test("a cgroup's room below its limit is computed from a made-up tree")
    func cgroup() throws {
        let statistics = "anon 100\nfile 900\ninactive_file 300\nactive_file 200\nslab_reclaimable 50\nx 1\n"
        let tree = try Self.tree(
            Self.limited("a", max: "2000", current: 1000, statistics),
            Self.limited("b", max: "max", current: 1000, statistics),
            Self.limited("c", max: "500", current: 1000, "anon 1\n"),
            Self.limited("d", max: "700", current: 100, statistics),
            Self.limited("e", max: "300", current: 1000, statistics),
            Self.limited("f", max: "max", high: "1500", current: 1000, statistics),
            Self.limited("g", max: "1500", high: "2000", current: 1000, statistics),
            Self.limited("h", max: "max", high: "x", current: 1000, statistics))
        let limited = try CgroupMemory(place("a", tree)).read()
        #expect(limited == CgroupMemory.Figures(limit: 2000, current: 1000, reclaimable: 550))
        #expect(limited?.headroom == 1550)
        #expect(try CgroupMemory(place("b", tree)).read() == nil)
        #expect(failure { _ = try CgroupMemory(place("c", tree)).read() }?.errno == EBADMSG)
        // Contradictory figures.
        #expect(try CgroupMemory(place("d", tree)).read()?.headroom == 700)
        #expect(try CgroupMemory(place("e", tree)).read()?.headroom == 0)
        // From `memory.high` on, processes wait.
        for name in ["f", "g"] { #expect(try CgroupMemory(place(name, tree)).read()?.limit == 1500) }
        #expect(failure { _ = try CgroupMemory(place("h", tree)).read() }?.errno == EBADMSG)
        #expect(failure { _ = try CgroupMemory(place("none", tree)) }?.isNoSuchFile == true)
    }

    private static func tree(_ cgroups: [String: String]...) throws -> MadeUpTree {
        try MadeUpTree(cgroups.reduce(into: [:]) { $0.merge($1) { $1 } })
    }

    /// The files of a cgroup with a memory controller.
    private static func limited(
        _ name: String, max: String, high: String = "max", current: Int, _ statistics: String
    ) -> [String: String] {
        [
            "\(name)/memory.max": "\(max)\n", "\(name)/memory.high": "\(high)\n",
            "\(name)/memory.current": "\(current)\n", "\(name)/memory.stat": statistics,
        ]
    }

    @Test("the lowest room counts, below a cgroup's own limit or those above it, up to a container's")
    func limits() throws {
        let statistics = "inactive_file 0\nactive_file 0\nslab_reclaimable 0\n"
        func figures(_ root: String, _ slice: String, _ user: String) throws -> CgroupLimits.Figures? {
            let tree = try Self.tree(
                Self.limited(".", max: root, current: 900, statistics),
                Self.limited("user.slice", max: slice, current: 800, statistics),
                Self.limited("user.slice/user-1.slice", max: user, current: 100, statistics))
            let cgroup = try place("user.slice/user-1.slice", tree)
            return try #require(CgroupLimits(cgroup)).read(below: 10_000)
        }
        func least(_ limit: UInt64, _ current: UInt64, isOwn: Bool) -> CgroupLimits.Figures {
            CgroupLimits.Figures(
                memory: CgroupMemory.Figures(limit: limit, current: current, reclaimable: 0), isOwn: isOwn)
        }
        #expect(try figures("max", "max", "max") == nil)
        #expect(try figures("max", "max", "500") == least(500, 100, isOwn: true))
        #expect(try figures("max", "1000", "500") == least(1000, 800, isOwn: false))
        #expect(try figures("1000", "max", "max") == least(1000, 900, isOwn: false))
        // More than the machine has is no limit, no matter how little is left.
        #expect(try figures("max", "10000", "9999") == least(9999, 100, isOwn: true))
        let bare = try MadeUpTree(["user.slice/cgroup.procs": ""])
        let none = try CgroupLimits(place("user.slice", bare))
        #expect(none.map { _ in "a controller" } == nil)
    }

    @Test("of the memory that a cgroup's end releases, pages shared by its processes count once")
    func releasable() throws {
        let tree = try MadeUpTree([
            "a/memory.stat": "anon 4096\nfile 900\nanon_thp 7\n", "a/memory.swap.current": "8192\n",
            "b/memory.stat": "anon 4096\nfile 900\n", "c/memory.stat": "file 900\n", "d/cgroup.procs": "",
        ])
        #expect(try place("a", tree).releasableMemory() == 12_288)
        #expect(try place("b", tree).releasableMemory() == 4096, "without swap accounting")
        #expect(failure { _ = try place("c", tree).releasableMemory() }?.errno == EBADMSG)
        #expect(failure { _ = try place("d", tree).releasableMemory() }?.isNoSuchFile == true)
    }

    @Test("own memory is locked and unlocked", .enabled(if: capability(14), "needs CAP_IPC_LOCK"))
    func lock() throws {
        try MemoryLock.lock()
        defer { munlockall() }
        let status = try String(contentsOfFile: "/proc/self/status", encoding: .utf8)
        let line = try #require(status.split(separator: "\n").first { $0.hasPrefix("VmLck:") })
        #expect(try #require(Int(line.filter(\.isNumber))) > 0)
    }
}

/// A cgroup of a made-up tree.
func place(_ name: String, _ tree: MadeUpTree) throws -> Cgroup {
    guard let cgroup = Cgroup(path: "/\(name)", in: UnifiedHierarchy(mountPoint: tree.root)) else {
        throw Trouble("no cgroup's name: \(name)")
    }
    return cgroup
}

/// Whether this process has a capability, given by its number (capabilities(7)).
func capability(_ number: Int) -> Bool {
    guard let status = try? String(contentsOfFile: "/proc/self/status", encoding: .utf8),
        let line = status.split(separator: "\n").first(where: { $0.hasPrefix("CapEff:") }),
        let mask = UInt64(line.dropFirst(7).trimmingCharacters(in: .whitespaces), radix: 16)
    else { return false }
    return mask & (1 << UInt64(number)) != 0
}
