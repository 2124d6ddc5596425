import Glibc
import TestSupport
import Testing

@testable import Linux

/// Real cgroups, in the place of the whole hierarchy.
@Suite("CgroupCensus", .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
struct CgroupCensusTests {
    private let most = 5

    private func census(_ top: TestCgroup) -> CgroupCensus {
        CgroupCensus(mountPoint: top.cgroup.directory, most: UInt64(most))
    }

    @Test("a hierarchy without a slice of users is not limited")
    func noSlice() throws {
        let top = try TestCgroup()
        let nested = try (0..<10).map { try TestCgroup("nested-\($0)", below: top.cgroup) }
        #expect(census(top).isShallow { 5 })
        #expect(census(top).isShallow { nil })
        withExtendedLifetime(nested) {}
    }

    @Test("a user with too many cgroups is told apart from one with few, and from one without a slice")
    func users() throws {
        let top = try TestCgroup()
        let users = try TestCgroup("user.slice", below: top.cgroup)
        let few = try TestCgroup("user-5.slice", below: users.cgroup)
        let many = try TestCgroup("user-6.slice", below: users.cgroup)
        var isAsked = false
        #expect(
            census(top).isShallow {
                isAsked = true
                return nil
            })
        #expect(!isAsked)
        let deep = try (0...most).reduce(into: [many]) { nest, _ in
            try nest.append(TestCgroup("n", below: nest[nest.count - 1].cgroup))
        }
        #expect(census(top).isShallow { 5 })
        #expect(!census(top).isShallow { 6 })
        #expect(!census(top).isShallow { 7 })
        #expect(!census(top).isShallow { nil })
        // The innermost first.
        for cgroup in deep.reversed() { rmdir(cgroup.cgroup.directory) }
        withExtendedLifetime(few) {}
    }

    @Test("on this machine our own cgroup can be named")
    func own() throws {
        #expect(Proc().canNameCgroup(of: getpid()))
        #expect(try Proc().unifiedCgroup(of: getpid()) != nil)
    }
}
