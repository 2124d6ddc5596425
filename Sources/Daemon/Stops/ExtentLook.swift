import AppStateContract
import LifeCycle
import Linux

/// The subjects of `Looks`.
enum LookSubject: Hashable, Sendable {
    case objections(ApplicationNumber, LookMoment)
    case unread(ApplicationNumber)
    case locks(user: UInt32)
}

/// When a look for objections is made.
enum LookMoment: Hashable, Sendable {
    /// Before a stop.
    case before
    /// The same, a moment after an earlier look, to measure what the application has done meanwhile.
    case measuring
    /// After a stop. Kinds of work are not examined, because no process works.
    case standing
}

/// The result of a look.
enum LookFinding: Sendable {
    case objections(Objections)
    /// Whether something waits to be read, or that cannot be determined.
    case unread(Bool)
    case locks(LockRound)
}

/// The objections that a look at an application's processes finds to a suspension that was not requested.
struct Objections: Sendable {
    /// In words; empty: nothing.
    var reasons: [String] = []
    /// The processes that were examined.
    var pids: Set<Int32> = []
    /// How much they have worked so far; empty if the rate is already known or does not matter.
    var sample = WorkSample()
}

/// How much an application has worked so far. Two samples give the rate.
struct WorkSample: Sendable {
    /// Empty if transfers do not count, or if there were none a moment ago.
    var traffic = NetworkTraffic()
    /// nil if its use of the processor does not count.
    var processorTime: ProcessorTime?
    /// nil if it does not count what it writes, or if it has never written enough.
    var written: WrittenBytes?
    /// It wrote much between the two looks before. A program that saves its state does so for a moment; one that
    /// copies or exports something goes on.
    var hasWritten = false

    var isEmpty: Bool { traffic.isEmpty && processorTime == nil && written == nil }
}

/// What counts as work of an application.
struct Work: Sendable {
    /// The kinds that count.
    var kinds: Set<ObjectionReason> = []
    /// The bytes per second from which a transfer counts; nil: none does.
    var networkRate: UInt64?
    /// The bytes per second from which writing counts; nil: it does not.
    var diskRate: UInt64?
    /// nil: it cannot be determined which processes inhibit something.
    var inhibitors: [Inhibitors.Inhibitor]? = []
    /// Whether files are read that may make the look hang. Without them it is not known whether a shell waits for a
    /// command that has left the application, so each shell with children counts, and what is written does not count.
    var mayHang = true
    /// Whether it was needed a short while ago, so that it counts whether it computes.
    var isAnswering = false
    /// Whether a later look may measure the work relative to this one.
    var isMeasured = false
    /// The sample of an earlier look, relative to which the work is measured.
    var earlier: WorkSample?
}

/// How a look from another thread finds an application's processes.
struct ExtentLook: Sendable {
    let proc: Proc
    let main: ProcessIdentity
    let owner: UInt32
    /// The cgroup of the stop that is under way or complete, if there is one.
    let cgroup: Cgroup?
    /// Where the cgroup is searched for that a stop would freeze.
    let hierarchy: UnifiedHierarchy?
    /// The daemon's own cgroup.
    let daemon: Cgroup?
    /// Processes at which the extent ends.
    let foreign: Set<ProcessIdentity>
    let handed: HandedOver

    func objections(_ work: Work) -> Objections {
        // The number of processes is limited; what each of them has open is not.
        var found = Objections(pids: Set(members().map(\.pid)))
        var budget = LookBudget()
        let pids = found.pids.sorted()
        do throws(LookLimit) {
            if let tracer = try proc.tracer(ofAny: pids, &budget) {
                found.reasons.append("a debugger (pid \(tracer)) is attached")
            }
            if let locks = try? FileLocks(proc: proc),
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

    /// The words for a finding begin with the reason, as it is written in a rule.
    private func add(
        _ work: Work, of pids: [Int32], to found: inout Objections, _ budget: inout LookBudget
    ) throws(LookLimit) {
        if work.kinds.contains(.terminalJob),
            let job = try proc.foregroundJob(
                of: pids, &budget, readsCalls: work.mayHang, isForeign: foreign.contains)
        {
            found.reasons.append("\(ObjectionReason.terminalJob.rawValue): \(job.words) works in a terminal")
        }
        if work.kinds.contains(.inhibitor), let why = inhibition(work.inhibitors, in: found.pids) {
            found.reasons.append("\(ObjectionReason.inhibitor.rawValue): \(why)")
        }
        // One reason is enough.
        guard work.isMeasured, found.reasons.isEmpty else { return }
        let sample = sample(work, of: pids)
        guard sample.traffic.isWhole else {
            found.reasons.append(
                "\(ObjectionReason.network.rawValue): cannot be determined: the machine has too many sockets")
            return
        }
        guard let earlier = work.earlier else {
            found.sample = sample
            return
        }
        if let limit = work.networkRate, !earlier.traffic.isEmpty,
            sample.traffic.rate(since: earlier.traffic) >= limit
        {
            found.reasons.append(
                "\(ObjectionReason.network.rawValue): it transfers \(limit) bytes per second or more")
        }
        if let now = sample.processorTime, let before = earlier.processorTime,
            now.processors(since: before) >= Self.answeringProcessors
        {
            found.reasons.append("demand: it was needed, and still computes")
        }
        guard let limit = work.diskRate, let now = sample.written, let before = earlier.written,
            now.rate(since: before) >= limit
        else { return }
        if earlier.hasWritten {
            found.reasons.append(
                "\(ObjectionReason.disk.rawValue): it writes \(limit) bytes per second or more")
        } else {
            found.sample = WorkSample(written: now, hasWritten: true)
        }
    }

    /// An application that was needed counts as working while it uses a tenth of a processor: an application
    /// that opens a file uses most of a processor, and one that waits uses almost nothing.
    private static let answeringProcessors = 0.1

    private func sample(_ work: Work, of pids: [Int32]) -> WorkSample {
        var sample = WorkSample()
        // A later look measures what the one before has begun to measure.
        if work.kinds.contains(.network), work.networkRate != nil, work.earlier?.traffic.isEmpty != true {
            sample.traffic = NetworkTraffic(
                of: pids, owner: owner, proc: proc, handed: handed)
        }
        if work.isAnswering, work.earlier == nil || work.earlier?.processorTime != nil {
            sample.processorTime = ProcessorTime(of: pids)
        }
        if work.mayHang, work.kinds.contains(.disk), let limit = work.diskRate,
            work.earlier == nil || work.earlier?.written != nil
        {
            let written = WrittenBytes(of: pids, proc: proc)
            // One that has written less in its whole life was never as fast for a second.
            if written.sum >= limit { sample.written = written }
        }
        return sample
    }

    private func inhibition(_ inhibitors: [Inhibitors.Inhibitor]?, in pids: Set<Int32>) -> String? {
        guard let inhibitors else { return "cannot be determined: logind has too many inhibitors" }
        return inhibitors.first { isOfUser($0, in: pids) }.map { "pid \($0.pid) inhibits \($0.what)" }
    }

    private func isOfUser(_ inhibitor: Inhibitors.Inhibitor, in pids: Set<Int32>) -> Bool {
        pids.contains(inhibitor.pid)
            && (try? proc.status(inhibitor.pid).owner.isWholly(inhibitor.user)) == true
    }

    /// Also true if this cannot be determined.
    func hasUnread() -> Bool {
        (try? UnixSockets.haveUnread(members(), proc: proc, handed: handed)) ?? true
    }

    /// The processes that the stop has stopped or would stop: a process of the application's own unit belongs to it
    /// even if its parents have ended.
    private func members() -> [ProcessIdentity] {
        guard let cgroup else {
            return Extent.affected(
                of: main, owner: owner, hierarchy: hierarchy, daemon: daemon, proc: proc,
                isForeign: foreign.contains)
        }
        let members = Extent.members(of: main, proc: proc, isForeign: foreign.contains)
        let known = Set(members.map(\.pid))
        let others = ((try? cgroup.processes()) ?? []).filter { !known.contains($0) }
        return members
            + others.compactMap { try? proc.identity(of: $0) }
    }
}

/// One look at the file locks of one user's applications.
struct LockRound: Sendable {
    /// The applications for which a process waits, and in words which process; or why that cannot be determined.
    var found: [(number: ApplicationNumber, token: UInt64, why: String)] = []
    /// The first application for which there was no time; nil: all were examined.
    var rest: ApplicationNumber?
    /// The processor time that it took.
    var microseconds: Microseconds = 0

    struct Subject: Sendable {
        let number: ApplicationNumber
        /// Which of the watches over that application this is.
        let token: UInt64
        let pids: Set<Int32>
    }

    init(_ subjects: [Subject], proc: Proc) {
        let begin = Clock.threadMicroseconds
        defer { microseconds = Clock.threadMicroseconds - begin }
        var budget = LookBudget()
        guard let locks = try? FileLocks(proc: proc),
            !locks.contests.isEmpty || !locks.isWhole
        else { return }
        for (index, subject) in subjects.enumerated() {
            do throws(LookLimit) {
                if let waiter = try locks.waiter(blockedBy: subject.pids, proc: proc, &budget) {
                    found.append((subject.number, subject.token, waiter.words))
                }
            } catch {
                // The rest of the budget was too small for it, so it comes first next time.
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

extension ForegroundJob {
    fileprivate var words: String {
        switch self {
        case .process(let pid): "pid \(pid)"
        case .group(let group): "process group \(group)"
        }
    }
}

extension FileLocks.Waiter {
    fileprivate var words: String {
        let who = pid.map { "pid \($0)" } ?? "a process"
        return "\(who) waits for a file lock (\(lock.file)) that pid \(holder) holds"
    }
}
