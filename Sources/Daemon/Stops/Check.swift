import AppStateContract
import LifeCycle
import Linux

/// A check of an application's processes for objections to a suspension that was not requested (§ 2). It reads files
/// that may make it wait, and is run by the worker.
struct Check: Sendable {
    let proc: Proc
    let main: ProcessIdentity
    let owner: UInt32
    /// The application's own cgroup, if it has one.
    let cgroup: Cgroup?
    /// Processes at which the application ends.
    let foreign: Set<ProcessIdentity>
    let handed: HandedOver

    /// What counts as work of the application.
    struct Work: Sendable {
        /// The kinds that count.
        var kinds: Set<ObjectionReason> = []
        /// The bytes per second from which a transfer counts; nil: none does.
        var networkRate: UInt64?
        /// The bytes per second from which writing counts; nil: it does not.
        var diskRate: UInt64?
        var inhibitors: [Inhibitors.Inhibitor] = []
        /// Whether it was needed a short while ago, so that it counts whether it computes.
        var isAnswering = false
        /// Whether a later check measures the work relative to this one.
        var isMeasured = false
        /// The sample of an earlier check, relative to which the work is measured.
        var earlier: WorkSample?
    }

    struct Findings: Sendable {
        /// The objections in words; empty: none.
        var reasons: [String] = []
        /// The processes that were examined.
        var pids: Set<Int32> = []
        /// How much they have worked so far; empty if the rate is already known or does not matter.
        var sample = WorkSample()
    }

    func findings(_ work: Work) -> Findings {
        var found = Findings(pids: Set(members().map(\.pid)))
        let pids = found.pids.sorted()
        if let tracer = proc.tracer(ofAny: pids) {
            found.reasons.append("a debugger (pid \(tracer)) is attached")
        }
        if let waiter = try? FileLocks(proc: proc).waiters(blockedBy: found.pids, proc: proc).first {
            found.reasons.append(waiter.words)
        }
        add(work, of: pids, to: &found)
        return found
    }

    /// The words for a finding begin with the reason, as it is written in a rule.
    private func add(_ work: Work, of pids: [Int32], to found: inout Findings) {
        if work.kinds.contains(.terminalJob),
            let job = proc.foregroundJob(of: pids, isForeign: foreign.contains)
        {
            found.reasons.append("\(ObjectionReason.terminalJob.rawValue): \(job.words) works in a terminal")
        }
        if work.kinds.contains(.inhibitor), let why = inhibition(work.inhibitors, in: found.pids) {
            found.reasons.append("\(ObjectionReason.inhibitor.rawValue): \(why)")
        }
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
        // A later check measures what the one before has begun to measure.
        if work.kinds.contains(.network), work.networkRate != nil, work.earlier?.traffic.isEmpty != true {
            sample.traffic = NetworkTraffic(of: pids, owner: owner, proc: proc, handed: handed)
        }
        if work.isAnswering, work.earlier == nil || work.earlier?.processorTime != nil {
            sample.processorTime = ProcessorTime(of: pids)
        }
        if work.kinds.contains(.disk), let limit = work.diskRate,
            work.earlier == nil || work.earlier?.written != nil
        {
            let written = WrittenBytes(of: pids, proc: proc)
            // One that has written less in its whole life was never as fast for a second.
            if written.sum >= limit { sample.written = written }
        }
        return sample
    }

    private func inhibition(_ inhibitors: [Inhibitors.Inhibitor], in pids: Set<Int32>) -> String? {
        inhibitors.first { isOfUser($0, in: pids) }.map { "pid \($0.pid) inhibits \($0.what)" }
    }

    private func isOfUser(_ inhibitor: Inhibitors.Inhibitor, in pids: Set<Int32>) -> Bool {
        pids.contains(inhibitor.pid)
            && (try? proc.status(inhibitor.pid).owner.isWholly(inhibitor.user)) == true
    }

    /// Also true if this cannot be determined.
    func hasUnread() -> Bool {
        let members = members()
        if (try? UnixSockets.haveUnread(members, proc: proc, handed: handed)) ?? true { return true }
        return NetworkTraffic.isUnread(by: members.map(\.pid), owner: owner, proc: proc, handed: handed)
    }

    /// The processes that a stop stops.
    private func members() -> [ProcessIdentity] {
        Extent.members(of: main, in: cgroup, proc: proc, isForeign: foreign.contains)
    }
}

/// How much an application has worked so far. Two samples give the rate.
struct WorkSample: Sendable {
    /// Empty if transfers do not count, or if there were none a moment ago.
    var traffic = NetworkTraffic()
    /// nil if its use of the processor does not count.
    var processorTime: ProcessorTime?
    /// nil if it does not count what it writes, or if it has never written enough.
    var written: WrittenBytes?
    /// It wrote much between the two checks before. A program that saves its state does so for a moment; one that
    /// copies or exports something goes on.
    var hasWritten = false

    var isEmpty: Bool { traffic.isEmpty && processorTime == nil && written == nil }
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
    var words: String {
        let who = pid.map { "pid \($0)" } ?? "a process"
        return "\(who) waits for a file lock (\(file)) that pid \(holder) holds"
    }
}
