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
        /// Whether it was needed for nothing but an answer, which it may owe still.
        var owesAnswer = false
        /// Whether work is measured.
        var isMeasured = false
        /// The sample relative to which it is measured; nil: a later check measures it relative to this one.
        var earlier: WorkSample?

        /// What is written in a shorter time than this counts as written in this time: a program that saves its state
        /// writes for a moment.
        static let leastWriting: Microseconds = 5_000_000
        /// The same for what is transferred: an answer is sent at once.
        static let leastTransfer: Microseconds = 1_000_000
    }

    struct Findings: Sendable {
        /// The objections in words; empty: none.
        var reasons: [String] = []
        /// The processes that were examined.
        var pids: Set<Int32> = []
        /// How much they have worked so far; nil if that was not measured.
        var sample: WorkSample?
    }

    func findings(_ work: Work) -> Findings {
        let pids = members().map(\.pid).sorted()
        var found = Findings(pids: Set(pids))
        if let tracer = proc.tracer(ofAny: pids) {
            found.reasons.append("a debugger (pid \(tracer)) is attached")
        }
        if let waiter = try? FileLocks(proc: proc).waiters(blockedBy: found.pids, proc: proc).first {
            found.reasons.append(waiter.words)
        }
        guard work.isMeasured || !work.kinds.isEmpty else { return found }
        let files = OpenFiles(of: pids, proc: proc, handed: handed)
        let snapshot = Snapshot(
            pids: pids, files: files, onTerminals: proc.processes(on: files.pseudoterminals))
        if work.isMeasured { found.sample = sample(work, of: pids, files) }
        for kind in ObjectionReason.allCases where work.kinds.contains(kind) {
            // A finding begins with the word that is written in a rule.
            if let why = reason(kind, work, snapshot, found.sample) {
                found.reasons.append("\(kind.rawValue): \(why)")
            }
        }
        if work.isAnswering, computes(found.sample, since: work.earlier) {
            found.reasons.append("demand: it was needed, and still computes")
        } else if work.owesAnswer, let why = answerDue(found.sample, pids) {
            found.reasons.append("demand: it was needed, and \(why)")
        }
        return found
    }

    /// Why an answer may be due, in words; nil: none is.
    private func answerDue(_ sample: WorkSample?, _ pids: [Int32]) -> String? {
        if sample?.traffic?.owesAnswer == true { return "has not answered on the network" }
        // A sandbox may hide what waits. Whether it computes says enough.
        if (try? hasUnread()) == true { return "has something to read" }
        let waits = pids.contains { (try? proc.stat($0).state) == .diskSleep }
        return waits ? "waits for a disk" : nil
    }

    /// What was snapshot at once, for all kinds of work.
    private struct Snapshot {
        let pids: [Int32]
        let files: OpenFiles
        /// The processes on pseudoterminals of which the application has an end.
        let onTerminals: [Proc.Stat]
    }

    /// What there is of this kind of work, in words; nil: nothing.
    private func reason(
        _ kind: ObjectionReason, _ work: Work, _ snapshot: Snapshot, _ sample: WorkSample?
    ) -> String? {
        let earlier = work.earlier
        switch kind {
        case .command, .clipboard, .selection, .audio, .unwatched, .background: return nil
        case .terminalJob:
            // A terminal's shells may have a unit of their own. They wait when nobody reads what they write.
            let others = snapshot.onTerminals.filter { isOn($0, snapshot.files.masters) }.map(\.pid)
            let pids = Set(snapshot.pids).union(others).sorted()
            return proc.terminalJob(of: pids, isForeign: foreign.contains).map(words)
        case .inhibitor:
            return inhibition(work.inhibitors, in: Set(snapshot.pids))
        case .device:
            let terminals = Set(snapshot.onTerminals.compactMap(\.pseudoterminal))
            let device = snapshot.files.device(besides: terminals) {
                let others = ((try? proc.processes()) ?? []).filter { !snapshot.pids.contains($0) }
                return OpenFiles(of: others, proc: proc, handed: handed)
            }
            return device.map { "it has \($0) open" }
        case .watchdog:
            return proc.watchdogProcess(of: main.pid).flatMap {
                snapshot.pids.contains($0) || isInUnit($0)
                    ? "a service manager expects pid \($0) to say that it is alive" : nil
            }
        case .network:
            guard let limit = work.networkRate, let now = sample?.traffic else { return nil }
            guard now.isWhole else { return "cannot be determined: the machine has too many sockets" }
            guard let before = earlier?.traffic, now.rate(since: before, over: Work.leastTransfer) >= limit
            else { return nil }
            return "it transfers \(limit) bytes per second or more"
        case .cpu:
            return computes(sample, since: earlier) ? "it uses a tenth of a processor or more" : nil
        case .disk:
            guard let limit = work.diskRate, let now = sample?.written, let before = earlier?.written,
                now.rate(since: before, over: Work.leastWriting) >= limit
            else { return nil }
            return "it writes \(limit) bytes per second or more"
        }
    }

    /// An application computes while it uses a tenth of a processor: one that opens a file uses most of a processor, and
    /// one that waits uses almost nothing.
    private func computes(_ sample: WorkSample?, since earlier: WorkSample?) -> Bool {
        guard let now = sample?.processorTime, let before = earlier?.processorTime else { return false }
        return now.processors(since: before) >= 0.1
    }

    /// How much it has worked so far.
    func sample(_ work: Work) -> WorkSample {
        let pids = members().map(\.pid)
        return sample(work, of: pids, OpenFiles(of: pids, proc: proc, handed: handed))
    }

    private func sample(_ work: Work, of pids: [Int32], _ files: OpenFiles) -> WorkSample {
        var sample = WorkSample(time: Clock.monotonicMicroseconds)
        if work.owesAnswer || work.kinds.contains(.network) && work.networkRate != nil {
            let traffic = NetworkTraffic(of: files, owner: owner, handed: handed)
            sample.traffic = traffic
            sample.mayWork = traffic.isInUse
        }
        if work.isAnswering || work.kinds.contains(.cpu) {
            sample.processorTime = ProcessorTime(of: pids)
            sample.mayWork = true
        }
        if work.kinds.contains(.disk), let limit = work.diskRate {
            let written = WrittenBytes(of: pids, proc: proc)
            sample.written = written
            // One that has written less in its whole life was never as fast for a second.
            if written.sum >= limit { sample.mayWork = true }
        }
        return sample
    }

    /// Whether the process is in the cgroup of the main process: the one with which a service began may only be the
    /// script that has started the application.
    private func isInUnit(_ pid: Int32) -> Bool {
        guard let unit = try? proc.unifiedCgroup(of: main.pid), unit != "/" else { return false }
        return (try? proc.unifiedCgroup(of: pid)) == unit
    }

    /// Whether the process is on one of these terminals, and belongs to no other application.
    private func isOn(_ process: Proc.Stat, _ terminals: Set<Int32>) -> Bool {
        guard let terminal = process.pseudoterminal, terminals.contains(terminal) else { return false }
        return !proc.lineage(of: process.pid).prefix { $0 != main }.contains(where: foreign.contains)
    }

    private func words(_ job: TerminalJob) -> String {
        switch job {
        case .foreground(let pid): "\(proc.commandLine(of: pid)) (pid \(pid)) works in a terminal"
        case .group(let group): "process group \(group) works in a terminal"
        case .background(let pid):
            "\(proc.commandLine(of: pid)) (pid \(pid)) works in the background of a terminal"
        }
    }

    private func inhibition(_ inhibitors: [Inhibitors.Inhibitor], in pids: Set<Int32>) -> String? {
        inhibitors.first { isOfUser($0, in: pids) }.map { "pid \($0.pid) inhibits \($0.what)" }
    }

    private func isOfUser(_ inhibitor: Inhibitors.Inhibitor, in pids: Set<Int32>) -> Bool {
        pids.contains(inhibitor.pid)
            && (try? proc.status(inhibitor.pid).owner.isWholly(inhibitor.user)) == true
    }

    /// - Throws: if it cannot be determined: see `UnixSockets.haveUnread`.
    func hasUnread() throws(KernelFailure) -> Bool {
        let members = members()
        if try UnixSockets.haveUnread(members, proc: proc, handed: handed) { return true }
        return NetworkTraffic.isUnread(by: members.map(\.pid), owner: owner, proc: proc, handed: handed)
    }

    /// The processes that a stop stops.
    private func members() -> [ProcessIdentity] {
        Extent.members(of: main, in: cgroup, proc: proc, isForeign: foreign.contains)
    }
}

/// How much an application has worked so far. Two samples give the rates. What does not count is nil.
struct WorkSample: Sendable {
    /// CLOCK_MONOTONIC, in microseconds.
    let time: Microseconds
    var traffic: NetworkTraffic?
    var processorTime: ProcessorTime?
    var written: WrittenBytes?
    /// It may be at work, so that it is worth a second sample.
    var mayWork = false
}

extension FileLocks.Waiter {
    var words: String {
        let who = pid.map { "pid \($0)" } ?? "a process"
        return "\(who) waits for a file lock (\(file)) that pid \(holder) holds"
    }
}
