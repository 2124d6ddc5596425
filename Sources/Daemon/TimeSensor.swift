import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// The values of the clocks and the time zone at one moment.
struct TimeReading: Equatable {
    /// CLOCK_REALTIME, CLOCK_BOOTTIME and CLOCK_MONOTONIC; microseconds.
    var real: Int64
    var boot: Int64
    var monotonic: Int64
    var local: LocalTime
    /// The contents of the time zone's file.
    var zone: [UInt8]

    /// A smaller difference counts neither as a set clock nor as sleep: the clocks are not read at the same
    /// instant, and no user notices a fraction of a second.
    private static let least: Int64 = 1_000_000

    /// The changes since another reading, in the order in which they are reported.
    ///
    /// CLOCK_REALTIME and CLOCK_BOOTTIME are slewed alike, so they move apart only if the first is set. Only
    /// CLOCK_BOOTTIME continues during sleep.
    func changes(since before: TimeReading) -> [TimeChange] {
        let isSet = abs((real - boot) - (before.real - before.boot)) >= Self.least
        let isOther = zone != before.zone
        var changes: [TimeChange] = []
        if (boot - monotonic) - (before.boot - before.monotonic) >= Self.least { changes.append(.resume) }
        if isSet { changes.append(.clockSet) }
        if isOther { changes.append(.timeZone) }
        // Setting the clock or the zone also sets the day.
        if isSet || isOther { return changes }
        if local.offset != before.local.offset { changes.append(.daylightSaving) }
        if local.day != before.local.day { changes.append(.midnight) }
        return changes
    }
}

/// Reports significant changes of the time, without polling: by the clock's own timer, and by the time zone's
/// file.
final class TimeSensor {
    private static let zone = "/etc/localtime"
    /// If the clock is set again and again while the timer is armed, the rest is left to the next event.
    private static let mostAttempts = 8

    private let journal: Journal
    private let report: (TimeChange) -> Void
    private let alarmed: (UInt64) -> Void
    private let timer: ClockTimer
    private let file: PathWatch
    private var sources: [Source] = []
    private var last: TimeReading
    /// CLOCK_REALTIME, in seconds. `alarmed` is called then, once.
    var alarm: Int64? {
        didSet { if alarm != oldValue, !arm() { compare() } }
    }

    /// - Parameters:
    ///   - report: gets each change.
    ///   - alarmed: gets CLOCK_REALTIME, in microseconds, when that has reached `alarm`.
    init(
        loop: EventLoop, journal: Journal, report: @escaping (TimeChange) -> Void,
        alarmed: @escaping (UInt64) -> Void
    ) throws {
        self.journal = journal
        self.report = report
        self.alarmed = alarmed
        timer = try ClockTimer()
        file = try PathWatch(path: Self.zone, isFile: true)
        last = Self.read()
        sources = [
            try loop.watch(timer.descriptor) { [unowned self] _ in
                timer.consume()
                compare()
            },
            try loop.watch(file.descriptor) { [unowned self] _ in
                if file.dispatch() { compare() }
            },
        ]
        arm()
    }

    private func compare() {
        let now = Self.read()
        let changes = now.changes(since: last)
        last = now
        let isAlarmed = alarm.map { now.real / 1_000_000 >= $0 } ?? false
        // This also arms the timer again.
        if isAlarmed { alarm = nil } else { arm() }
        for change in changes {
            journal.log(.info, "the time has changed: \(change.rawValue)")
            report(change)
        }
        if isAlarmed { alarmed(UInt64(now.real)) }
    }

    /// - Returns: false if the clock was set since the timer was last read.
    @discardableResult
    private func arm() -> Bool {
        do throws(KernelFailure) {
            for attempt in 0..<Self.mostAttempts {
                let moment = LocalTime.nextChange(after: Int64(Clock.realMicroseconds / 1_000_000))
                if try timer.wait(for: min(moment, alarm ?? moment)) { return attempt == 0 }
            }
        } catch {
            journal.log(.warning, "changes of the system time are no longer detected: \(error)")
        }
        return true
    }

    private static func read() -> TimeReading {
        LocalTime.readZone()
        let real = Int64(Clock.realMicroseconds)
        return TimeReading(
            real: real, boot: Int64(Clock.bootMicroseconds), monotonic: Int64(Clock.monotonicMicroseconds),
            local: LocalTime(at: real / 1_000_000),
            zone: (try? WholeFile.read(zone)) ?? [])
    }
}
