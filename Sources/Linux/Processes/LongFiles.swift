/// Whose `/proc/PID/status` is so long that it is not read again for a while.
///
/// A process may have 65,536 supplementary groups (NGROUPS_MAX; in a user namespace, every user with subordinate ids may
/// set them, newgidmap(1)). To write its status takes the kernel 20 ms. How many groups there are is known only once
/// the file is read.
final class LongFiles: @unchecked Sendable {
    /// A process that may not be looked into seems to be root's: then it alone is meant.
    enum Subject: Hashable {
        case user(UInt32)
        case process(Int32)
    }

    /// A file of so many bytes is long: some 9,000 groups, for which the kernel takes 3 ms.
    static let most = 64 << 10
    /// For how long it is not read again, in microseconds.
    private static let span: UInt64 = 60_000_000
    /// The most subjects that are remembered.
    private static let mostSubjects = 1_024

    private let lock = Lock()
    private var ends: [Subject: UInt64] = [:]

    func contains(_ subject: () -> Subject, at now: UInt64 = Clock.monotonicMicroseconds) -> Bool {
        lock.hold {
            if ends.isEmpty { return false }
            return ends[subject()].map { now < $0 } ?? false
        }
    }

    func insert(_ subject: Subject, at now: UInt64 = Clock.monotonicMicroseconds) {
        lock.hold {
            if ends.count >= Self.mostSubjects { ends = ends.filter { now < $0.value } }
            if ends.count >= Self.mostSubjects { ends = [:] }
            ends[subject] = now + Self.span
        }
    }
}
