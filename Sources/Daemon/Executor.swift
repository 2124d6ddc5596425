import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux

/// Carries out what the life cycle decided. Decides nothing; what comes of it is reported as a fact.
final class Executor {
    private let proc: Proc
    private let processes: Processes
    private let sensor: StopSensor
    private let announcer: Announcer
    private let journal: Journal
    private let report: (Fact) -> Void
    private let stops: Retries<ApplicationNumber>
    private let ownProcess: ProcessIdentity?
    private(set) var registered: [ApplicationNumber: Registered] = [:]
    private var numbers: [ProcessIdentity: ApplicationNumber] = [:]

    init(
        loop: EventLoop, proc: Proc, processes: Processes, sensor: StopSensor, announcer: Announcer,
        journal: Journal, now: @escaping () -> Microseconds, report: @escaping (Fact) -> Void
    ) throws(BusFailure) {
        self.proc = proc
        self.processes = processes
        self.sensor = sensor
        self.announcer = announcer
        self.journal = journal
        self.report = report
        stops = try Retries(loop: loop, now: now)
        ownProcess = try? proc.identity(of: getpid())
    }

    /// Takes note of how an application is reached; before the effects of its registration.
    func enroll(_ application: Registered) {
        registered[application.number] = application
        numbers[application.process] = application.number
        sensor.watch(application.number, application.process)
    }

    /// Before a stop is written down: who stands already is not ours to continue.
    func prepareStop(_ number: ApplicationNumber) {
        guard let application = registered[number], application.extent.stoppedByUs.isEmpty else { return }
        application.standing = Extent.members(of: application.process, proc: proc, isForeign: isForeign)
            .filter { (try? proc.isStopped($0)) == true }
    }

    /// Takes up what an earlier daemon had stopped, or was about to.
    func adopt(_ application: Registered, _ record: Record) {
        application.extent.adopt(stopped(of: application.process, record))
    }

    /// Continues what an earlier daemon had stopped of an application that is not taken up.
    func release(_ process: ProcessIdentity, user: UInt32, _ record: Record) {
        let extent = StoppedExtent(proc: proc, main: process, owner: user)
        extent.adopt(stopped(of: process, record))
        extent.release()
        for failure in extent.failures { journal.log(.warning, "resuming \(process): \(failure)") }
    }

    /// Killed while it stopped an application, a daemon has not written down whom it had reached: everybody
    /// who stands now and did not before.
    private func stopped(of main: ProcessIdentity, _ record: Record) -> [ProcessIdentity] {
        guard record.values(of: "hold") != [] || record["enforcement"]?.hasPrefix("none ") == false else {
            return []
        }
        let parsed = { (key: String) in
            record.values(of: key).compactMap(ProcessID.init(recorded:)).map(\.identity)
        }
        let standing = Set(parsed("standing"))
        let known = parsed("stopped-process")
        let members = Extent.members(of: main, proc: proc, isForeign: isForeign)
        return known + members.filter { !known.contains($0) && !standing.contains($0) }
    }

    func carryOut(_ effect: Effect) {
        switch effect {
        case .added(let number):
            if let application = registered[number] { announcer.added(application) }
        case .removed(let number, let reason):
            remove(number, reason)
        case .announce(let number, let announcement, let audience):
            if let application = registered[number] {
                announcer.announce(application, announcement, to: audience)
            }
        case .changed(let number, let properties):
            if let application = registered[number] { announcer.changed(application, properties) }
        case .focusChanged(let session):
            announcer.focusChanged(in: session)
        case .stop(let number, let reason):
            stop(number, reason)
        case .resume(let number, let sparingMain):
            resume(number, sparingMain: sparingMain)
        case .breathe(let number):
            registered[number]?.extent.release()
        case .continueForeign(let number):
            continueForeign(number)
        case .requestExit(let number):
            requestExit(number)
        case .kill(let number):
            kill(number)
        case .forget(let process):
            processes.forget(process)
        case .notice(let number, let notice):
            if let application = registered[number] {
                journal.log(
                    .notice, "application \(number) (\(application.id)): \(notice.description)",
                    application.fields)
            }
        }
    }

    /// Whether an extent ends at this process: it is an application of its own, or it is us.
    func isForeign(_ process: ProcessIdentity) -> Bool {
        numbers[process] != nil || process == ownProcess
    }

    // MARK: Stops

    private func stop(_ number: ApplicationNumber, _ reason: HoldReason) {
        guard let application = registered[number] else { return }
        switch reason {
        case .policy, .pressure:
            if let tracer = tracer(of: application) {
                report(.objected(number, "a debugger (pid \(tracer)) is attached"))
                return
            }
        case .request, .signal:
            break
        }
        if isStopComplete(number, application.extent.stop(isForeign: isForeign)) { return }
        stops.start(number, for: .max / 2) { [weak self] in
            guard let self, let application = registered[number] else { return true }
            return isStopComplete(number, application.extent.proceed(isForeign: isForeign))
        }
    }

    private func isStopComplete(_ number: ApplicationNumber, _ progress: StoppedExtent.Progress) -> Bool {
        switch progress {
        case .complete:
            logFailures(of: number)
            report(.stopped(number, holder: nil))
            return true
        case .pending:
            guard let application = registered[number], application.extent.members.isEmpty,
                let failure = application.extent.failures.last
            else { return false }
            // Its main process is out of our reach: that will not change by waiting.
            logFailures(of: number)
            report(.stopFailed(number, failure.description))
            return true
        }
    }

    private func logFailures(of number: ApplicationNumber) {
        guard let application = registered[number] else { return }
        for failure in application.extent.failures {
            journal.log(.notice, "application \(number) (\(application.id)): \(failure)", application.fields)
        }
    }

    private func resume(_ number: ApplicationNumber, sparingMain: Bool) {
        guard let application = registered[number] else { return }
        stops.cancel(number)
        application.extent.release(sparing: sparingMain ? [application.process] : [])
        if sparingMain { return }
        // It may have been stopped before we did, by somebody who has given it up since.
        if (try? proc.isStopped(application.process)) == true { signal(SIGCONT, application) }
        reportIfRunning(application)
    }

    private func continueForeign(_ number: ApplicationNumber) {
        guard let application = registered[number] else { return }
        let failures = Extent.signal(
            SIGCONT, to: application.process, owner: application.user, proc: proc, isForeign: isForeign)
        for failure in failures where !failure.isNoSuchProcess {
            journal.log(.notice, "application \(number) (\(application.id)): \(failure)", application.fields)
        }
        reportIfRunning(application)
    }

    /// SIGCONT wakes its process before kill(2) returns: a process that is still stopped was stopped anew.
    private func reportIfRunning(_ application: Registered) {
        if (try? proc.isStopped(application.process)) == false { report(.continued(application.number)) }
    }

    private func tracer(of application: Registered) -> Int32? {
        guard let tracer = (try? proc.status(application.process.pid))?.tracer, tracer != 0 else {
            return nil
        }
        return tracer
    }

    // MARK: The end

    private func requestExit(_ number: ApplicationNumber) {
        if let application = registered[number] { signal(SIGTERM, application) }
    }

    private func kill(_ number: ApplicationNumber) {
        guard let application = registered[number] else { return }
        let failures = Extent.signal(
            SIGKILL, to: application.process, owner: application.user, proc: proc, isForeign: isForeign)
        for failure in failures where !failure.isNoSuchProcess {
            journal.log(.warning, "application \(number) (\(application.id)): \(failure)", application.fields)
        }
    }

    /// To the main process, if it is still its user's.
    private func signal(_ signal: Int32, _ application: Registered) {
        do {
            let status = try proc.status(application.process.pid)
            guard status.owner.isWholly(application.user) else {
                throw KernelFailure(
                    operation: "signal \(signal)", subject: application.process.description, errno: EPERM)
            }
            try processes.send(signal, to: ProcessID(application.process))
        } catch let failure as KernelFailure where failure.isNoSuchProcess || failure.isNoSuchFile {
            // It has ended; its pidfd says so in a moment.
            return
        } catch {
            journal.log(
                .warning, "application \(application.number) (\(application.id)): \(error)",
                application.fields)
        }
    }

    private func remove(_ number: ApplicationNumber, _ reason: ExitReason) {
        guard let application = registered.removeValue(forKey: number) else { return }
        numbers[application.process] = nil
        stops.cancel(number)
        sensor.unwatch(number)
        // Whoever of it lives on must not stay stopped without a hold.
        application.extent.release()
        announcer.removed(application, reason)
    }
}

extension Registered {
    /// The journal's fields that say which application a line is about.
    var fields: [(String, String)] {
        [("APPSTATE_APP_ID", id.rawValue), ("APPSTATE_PID", String(process.pid))]
    }
}
