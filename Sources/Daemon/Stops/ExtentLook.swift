import AppStateContract
import LifeCycle
import Linux

/// What `Looks` can be asked about.
enum LookSubject: Hashable, Sendable {
    case objections(ApplicationNumber, LookMoment)
    case unread(ApplicationNumber)
    case locks(user: UInt32)
}

/// When a look for objections is made.
enum LookMoment: Hashable, Sendable {
    /// Before a stop.
    case before
    /// The same, a moment after the first: what it has transferred meanwhile is known.
    case measuring
    /// Afterwards. What works is not asked: nothing does.
    case standing
}

/// What comes of it.
enum LookFinding: Sendable {
    case objections(Objections)
    /// Whether something waits to be read, or that cannot be told.
    case unread(Bool)
    case locks(LockRound)
}

/// What a look at an application's processes says against a suspension that nobody has asked for.
struct Objections: Sendable {
    /// In words; empty: nothing.
    var reasons: [String] = []
    /// The processes that were looked at.
    var pids: Set<Int32> = []
    /// What they transfer; empty where the rate is known, or nobody wants it.
    var traffic = NetworkTraffic()
}

/// What counts as work of an application.
struct Work: Sendable {
    /// Those that count.
    var kinds: Set<ObjectionReason> = []
    /// Bytes per second from which it transfers something; nil: none does.
    var networkRate: UInt64?
    var inhibitors: [Inhibitors.Inhibitor] = []
    /// An earlier look, since which the rate is taken.
    var earlier: NetworkTraffic?
}

/// How an application's processes are found, for a look from another thread.
struct ExtentLook: Sendable {
    let proc: Proc
    let main: ProcessIdentity
    let owner: UInt32
    /// That of the stop under way or made, if there is one.
    let cgroup: Cgroup?
    /// Processes at which the extent ends.
    let foreign: Set<ProcessIdentity>
    let handed: HandedOver

    func objections(_ work: Work) -> Objections {
        var budget = LookBudget()
        var found = Objections(pids: pids { budget.rest() })
        let pids = found.pids.sorted()
        do throws(LookLimit) {
            if let tracer = try proc.tracer(ofAny: pids, &budget) {
                found.reasons.append("a debugger (pid \(tracer)) is attached")
            }
            if let locks = try? FileLocks(proc: proc, pause: { budget.rest() }),
                let waiter = try locks.waiter(blockedBy: found.pids, proc: proc, &budget)
            {
                found.reasons.append(waiter.words)
            }
            try add(work, of: pids, to: &found, &budget)
        } catch {
            found.reasons.append(error.description)
        }
        return found
    }

    /// The words of what is found begin with the reason, as it is written in a rule.
    private func add(
        _ work: Work, of pids: [Int32], to found: inout Objections, _ budget: inout LookBudget
    ) throws(LookLimit) {
        if work.kinds.contains(.terminalJob),
            let job = try proc.foregroundJob(of: pids, &budget)
        {
            found.reasons.append("\(ObjectionReason.terminalJob.rawValue): pid \(job) works in a terminal")
        }
        if work.kinds.contains(.inhibitor),
            let inhibitor = work.inhibitors.first(where: { isOfUser($0, in: found.pids) })
        {
            found.reasons.append(
                "\(ObjectionReason.inhibitor.rawValue): pid \(inhibitor.pid) inhibits \(inhibitor.what)")
        }
        guard work.kinds.contains(.network), let limit = work.networkRate else { return }
        let traffic = NetworkTraffic(
            of: pids, owner: owner, proc: proc, handed: handed, rest: { budget.rest() })
        guard let earlier = work.earlier else {
            found.traffic = traffic
            return
        }
        if traffic.rate(since: earlier) >= limit {
            found.reasons.append(
                "\(ObjectionReason.network.rawValue): it transfers \(limit) bytes per second or more")
        }
    }

    private func isOfUser(_ inhibitor: Inhibitors.Inhibitor, in pids: Set<Int32>) -> Bool {
        pids.contains(inhibitor.pid)
            && (try? proc.status(inhibitor.pid).owner.isWholly(inhibitor.user)) == true
    }

    /// True also where that cannot be told.
    func hasUnread() -> Bool {
        var budget = LookBudget()
        let members = members { budget.rest() }
        return (try? UnixSockets.haveUnread(members, proc: proc, handed: handed)) ?? true
    }

    private func members(_ pause: @escaping () -> Void) -> [ProcessIdentity] {
        Extent.members(of: main, proc: proc, pause: pause, isForeign: foreign.contains)
    }

    private func pids(_ pause: @escaping () -> Void) -> Set<Int32> {
        Set(members(pause).map(\.pid)).union((try? cgroup?.processes()) ?? [])
    }
}

/// One look at the file locks of one user's applications.
struct LockRound: Sendable {
    /// Whom somebody waits for, and in words who; or why that cannot be told.
    var found: [(number: ApplicationNumber, token: UInt64, why: String)] = []
    /// The first application that it had no time for; nil: it saw all.
    var rest: ApplicationNumber?
    /// The processor time it took.
    var microseconds: Microseconds = 0

    struct Subject: Sendable {
        let number: ApplicationNumber
        /// Which of the watches over that application.
        let token: UInt64
        let pids: Set<Int32>
    }

    init(_ subjects: [Subject], proc: Proc) {
        let begin = Clock.threadMicroseconds
        defer { microseconds = Clock.threadMicroseconds - begin }
        var budget = LookBudget()
        guard let locks = try? FileLocks(proc: proc, pause: { budget.rest() }),
            !locks.contests.isEmpty || !locks.isWhole
        else { return }
        for (index, subject) in subjects.enumerated() {
            do throws(LookLimit) {
                if let waiter = try locks.waiter(blockedBy: subject.pids, proc: proc, &budget) {
                    found.append((subject.number, subject.token, waiter.words))
                }
            } catch {
                // What is left of the budget was too little: it comes first next time.
                if index > 0, error != .locks(FileLocks.mostBytes) {
                    rest = subject.number
                    return
                }
                found.append((subject.number, subject.token, error.description))
                // The budget is spent.
                if error != .locks(FileLocks.mostBytes) {
                    rest = index + 1 < subjects.count ? subjects[index + 1].number : nil
                    return
                }
            }
        }
    }
}

extension FileLocks.Waiter {
    fileprivate var words: String {
        let who = pid.map { "pid \($0)" } ?? "somebody"
        return "\(who) waits for a file lock (\(lock.file)) that pid \(holder) holds"
    }
}
