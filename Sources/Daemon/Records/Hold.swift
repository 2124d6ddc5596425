import Glibc
import LifeCycle
import Linux

/// How the daemon holds an application: recorded before it acts.
enum Hold: Hashable {
    /// The cgroup is frozen, or about to be; the kernel's number tells it from a later one of the same name.
    case frozen(path: String, identifier: UInt64)
    /// The main process and its descendants have SIGSTOP, or are about to.
    case signalled
}

extension Hold {
    /// A freeze of this cgroup.
    init(freezing cgroup: Cgroup) throws(KernelFailure) {
        self = .frozen(path: cgroup.path, identifier: try cgroup.identifier())
    }

    /// The frozen cgroup, if it still exists.
    func cgroup(in hierarchy: UnifiedHierarchy) -> Cgroup? {
        guard case .frozen(let path, let identifier) = self, let cgroup = Cgroup(path: path, in: hierarchy),
            (try? cgroup.identifier()) == identifier
        else { return nil }
        return cgroup
    }

    // MARK: Written down

    private static let key = "held"

    /// What a record says about it.
    var lines: [Record.Line] {
        switch self {
        case .frozen(let path, let identifier): [Record.Line(Self.key, "frozen", path, String(identifier))]
        case .signalled: [Record.Line(Self.key, "signalled")]
        }
    }

    /// nil: the record says nothing about a hold.
    init?(_ record: Record) {
        let holds = record.understood(Self.key) { fields -> Hold? in
            switch fields.text() {
            case "frozen":
                guard let path = fields.text(), let identifier: UInt64 = fields.number() else { return nil }
                return .frozen(path: path, identifier: identifier)
            case "signalled": return .signalled
            default: return nil
            }
        }
        guard let hold = holds.first else { return nil }
        self = hold
    }

    static func isOne(_ line: Record.Line) -> Bool { line.key == key }

    // MARK: Ended for a daemon that is gone

    /// Thaws or continues the application's processes, except those of other applications.
    ///
    /// - Parameters:
    ///   - known: further processes that may be its own: their parents may have ended.
    ///   - sparingMain: another program has stopped its main process.
    /// - Returns: what was done, in words; nil: nothing was held any longer.
    /// - Throws: why something may still be held.
    func release(
        main: ProcessIdentity, known: Set<ProcessIdentity>, user: UInt32, sparingMain: Bool, proc: Proc,
        isForeign: (ProcessIdentity) -> Bool
    ) throws(KernelFailure) -> String? {
        switch self {
        case .frozen:
            guard let cgroup = UnifiedHierarchy.find().flatMap(cgroup), try cgroup.endFreeze() else {
                return nil
            }
            return "thawed \(cgroup)"
        case .signalled:
            do throws(KernelFailure) {
                _ = try proc.identity(of: main.pid)
            } catch {
                // Its children cannot be found for lack of descriptors, for example.
                if !error.isNoSuchProcess { throw error }
            }
            var count = 0
            var failure: KernelFailure?
            let members = Extent.members(of: main, proc: proc, isForeign: isForeign)
            let orphans = known.subtracting(members).filter { !isForeign($0) }
            // Children before their parents, which would see them as stopped.
            for process in orphans + members.reversed() where process != main || !sparingMain {
                do throws(KernelFailure) {
                    guard try proc.hasStop(process) else { continue }
                    try Extent.signal(SIGCONT, toOnly: process, owner: user, proc: proc)
                    count += 1
                } catch {
                    // What is not wholly its user's is not ours.
                    if !error.isNoSuchProcess, error.errno != EPERM { failure = error }
                }
            }
            if let failure { throw failure }
            return count == 0 ? nil : "continued \(count) of its processes"
        }
    }

    /// Thaws the cgroups that a daemon had frozen and that nobody holds any longer, whatever is recorded.
    ///
    /// - Parameter held: the holds that go on.
    /// - Returns: the cgroups that were thawed, and why some may still be frozen.
    static func thawMarked(except held: Set<Hold> = []) -> (thawed: [Cgroup], failure: KernelFailure?) {
        guard let hierarchy = UnifiedHierarchy.find() else { return ([], nil) }
        var (marked, failure) = Cgroup.marked(in: hierarchy)
        marked.removeAll { cgroup in (try? Hold(freezing: cgroup)).map(held.contains) == true }
        var thawed: [Cgroup] = []
        for cgroup in marked {
            do throws(KernelFailure) {
                if try cgroup.endFreeze() { thawed.append(cgroup) }
            } catch {
                failure = error
            }
        }
        return (thawed, failure)
    }
}
