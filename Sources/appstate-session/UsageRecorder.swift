import AppStateBus
import AppStateContract
import Glibc
import Linux
import Systemd
import Usage

/// Records the states of the user's applications and what they use, in the user's file (`UsageLog`).
///
/// Of several agents of a user, the one that has locked the file records.
final class UsageRecorder {
    private struct Subject {
        let number: Int
        let pid: Int32
        var meter: ApplicationMeter?
        /// The state that is recorded; nil: none yet.
        var state: LifeCycleState?
        /// The figures at the last line, and the latest ones. Of a process that has ended, none can be read.
        var recorded: ApplicationMeter.Figures?
        var latest: ApplicationMeter.Figures?
        /// When the state changed first since the last line. CLOCK_REALTIME in seconds.
        var changed: Int64?
        /// When the last line was written.
        var written: Int64 = 0
        /// KiB.
        var reclaimed: Int64 = 0
    }

    private let loop: EventLoop
    private let journal: Journal
    private let path: String
    /// Ends a short time in which several changes count as one: every path to and from the focus has three steps.
    private var settling: Timer?
    private var tick: Timer?
    private var isSettling = false
    /// The file, locked; -1: it is not open.
    private var file: Int32 = -1
    private var size = 0
    private var oldest: Int64 = 0
    /// The time of the last line.
    private var last: Int64 = 0
    private var isRefused = false
    private var applications = Applications()
    /// By the path of the application's object.
    private var subjects: [String: Subject] = [:]
    private var names: [String] = []

    private static let settlingTime: UInt64 = 2_000_000
    private static let pause: UInt64 = 300_000_000
    /// An application whose state does not change has a line of its own as often, in seconds.
    private static let figuresApart: Int64 = 3_600

    init(path: String, loop: EventLoop, journal: Journal) throws {
        self.path = path
        self.loop = loop
        self.journal = journal
        settling = try loop.timer { [unowned self] in settle() }
        tick = try loop.timer { [unowned self] in record() }
        record()
    }

    deinit {
        settle()
        if isOurs { pass(to: Self.now) }
        leave()
    }

    // MARK: What is learned

    /// Learns which applications there are, and their states.
    func follow(_ applications: Applications) {
        self.applications = applications
        let states = applications.states
        for (pid, entry) in applications.entries where subjects[entry.path] == nil && states[pid] != nil {
            subjects[entry.path] = Subject(
                number: number(for: entry.name), pid: pid, meter: try? ApplicationMeter(pid))
        }
        for path in subjects.keys where state(of: path) != subjects[path]?.state { note(path) }
    }

    /// The end of an application has freed memory.
    func note(reclaimed bytes: UInt64, of path: String) {
        guard subjects[path] != nil else { return }
        subjects[path]?.reclaimed += Int64(clamping: bytes >> 10)
        note(path)
    }

    private func state(of path: String) -> LifeCycleState {
        guard let subject = subjects[path], applications.entries[subject.pid]?.path == path else {
            return .notRunning
        }
        return applications.states[subject.pid] ?? .notRunning
    }

    /// A number is used again for another process with the same id, once the first has ended.
    private func number(for id: String) -> Int {
        let used = Set(subjects.values.map(\.number))
        if let free = names.indices.first(where: { names[$0] == id && !used.contains($0) }) { return free }
        names.append(id)
        write(UsageLog.Line.name(names.count - 1, id).text)
        return names.count - 1
    }

    private func note(_ path: String) {
        guard var subject = subjects[path], subject.changed == nil else { return }
        subject.changed = Self.now
        // What it uses from now on belongs to another state.
        read(&subject)
        subjects[path] = subject
        guard !isSettling else { return }
        isSettling = true
        settling?.arm(at: loop.now + Self.settlingTime)
    }

    private func read(_ subject: inout Subject) {
        guard let figures = subject.meter?.read(among: applications.registered) else { return }
        // Figures of another counter begin anew.
        if subject.recorded?.counter != figures.counter { subject.recorded = figures }
        subject.latest = figures
    }

    private func settle() {
        isSettling = false
        let changed = subjects.filter { $0.value.changed != nil }
            .sorted { ($0.value.changed ?? 0, $0.value.number) < ($1.value.changed ?? 0, $1.value.number) }
        for (path, var subject) in changed {
            let state = state(of: path)
            if state != subject.state || subject.reclaimed > 0 {
                line(&subject, state, at: subject.changed ?? Self.now)
            }
            subject.changed = nil
            subjects[path] = subject
        }
    }

    /// Every five minutes: what ran for long has a line, so that little is lost if the agent is killed.
    private func record() {
        tick?.arm(at: loop.now + Self.pause)
        open()
        subjects = subjects.filter { state(of: $0.key) != .notRunning || $0.value.changed != nil }
        for (path, var subject) in subjects.sorted(by: { $0.value.number < $1.value.number })
        where subject.changed == nil && subject.state != .suspended {
            read(&subject)
            if let state = subject.state, Self.now - subject.written >= Self.figuresApart {
                line(&subject, state, at: Self.now)
            }
            subjects[path] = subject
        }
        if Self.now > last { pass(to: Self.now) }
    }

    // MARK: The file

    private static var now: Int64 { Int64(Clock.realMicroseconds / 1_000_000) }

    private func line(_ subject: inout Subject, _ state: LifeCycleState, at time: Int64) {
        var event = UsageLog.Event(time: time, application: subject.number, state: state)
        if let old = subject.recorded, let new = subject.latest {
            event.processor = Self.milliseconds(from: old.processor, to: new.processor)
            if subject.state == .suspended, let before = old.frozen, let after = new.frozen {
                event.frozen = Self.milliseconds(from: before, to: after)
            }
            event.swapped = Int64(clamping: new.swapped >> 10)
        }
        event.reclaimed = subject.reclaimed
        write(UsageLog.Line.event(after: max(0, time - last), event).text, at: time)
        (subject.state, subject.recorded, subject.reclaimed) = (state, subject.latest, 0)
        subject.written = time
    }

    private static func milliseconds(from old: UInt64, to new: UInt64) -> Int64 {
        new > old ? Int64(clamping: (new - old) / 1_000) : 0
    }

    private func pass(to time: Int64) { write(UsageLog.Line.pass(max(0, time - last)).text, at: time) }

    /// Appends a line. It is not synced: a line that the machine loses is a few minutes of statistics.
    private func write(_ text: String, at time: Int64? = nil) {
        guard isOurs else { return }
        if let time { last = max(last, time) }
        let bytes = Array(text.utf8)
        let count = bytes.withUnsafeBytes { Glibc.write(file, $0.baseAddress, $0.count) }
        size += max(0, count)
        // The next recording cuts off a line that is not whole.
        if count != bytes.count { leave() }
    }

    /// Whether the file is open and still has its name: `appstatectl usage --forget` deletes it.
    private var isOurs: Bool {
        var status = stat()
        guard file >= 0 else { return false }
        if fstat(file, &status) == 0, status.st_nlink > 0 { return true }
        leave()
        return false
    }

    private func leave() {
        if file >= 0 { close(file) }
        file = -1
    }

    /// Begins a recording, unless one goes on that has room.
    private func open() {
        let now = Self.now
        if isOurs, now >= last, size < UsageLog.limit * 15 / 16, now - oldest < UsageLog.longestAge + 86_400 {
            return
        }
        leave()
        do throws(KernelFailure) {
            guard let number = try UsageFile.begin(path, at: now) else { return }
            (file, size, oldest, last) = (number.file, number.size, number.oldest, now)
            isRefused = false
        } catch {
            // The disk may have room in five minutes.
            if !isRefused { journal.log(.warning, "usage is not recorded: \(error)") }
            isRefused = true
            return
        }
        var text = ""
        for (number, name) in names.enumerated() { text += UsageLog.Line.name(number, name).text }
        for subject in subjects.values.sorted(by: { $0.number < $1.number }) {
            guard let state = subject.state, state != .notRunning else { continue }
            let event = UsageLog.Event(time: now, application: subject.number, state: state)
            text += UsageLog.Line.event(after: 0, event).text
        }
        write(text)
    }
}
