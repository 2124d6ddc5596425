import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
public import Systemd

/// `appstated --release`: releases the applications that a daemon left suspended if no daemon is going to be
/// started. It needs neither a bus nor that daemon's configuration. The applications stay registered
/// for the next daemon, without a hold.
public enum Release {
    /// - Returns: the exit status: 1 if something could not be released.
    public static func run(runtimeDirectory: String, journal: Journal) -> Int32 {
        // No directory is created for this. If it is lost, the marks of the cgroups are left.
        guard access(Environment.firstDirectory(of: runtimeDirectory), F_OK) == 0,
            let state = RuntimeState(directory: runtimeDirectory, journal: journal)
        else { return areMarkedThawed(journal) ? 0 : 1 }
        guard state.lock(alone: true) else {
            journal.log(.error, "a running daemon uses \(runtimeDirectory): nothing is released")
            return 1
        }
        let isReleased = areReleased(state, journal)
        return areMarkedThawed(journal) && isReleased ? 0 : 1
    }

    /// Answers the calls that wait on the bus for a daemon whose unit has failed.
    ///
    /// systemd refuses to start such a unit, but does not tell dbus-daemon, where each call would wait for 25 s. The
    /// bus delivers the calls to whoever gets the name.
    public static func refuseCalls() {
        do throws(BusFailure) {
            let bus = try Bus.system()
            guard try hasFailed(bus) else { return }
            let filter = try bus.addFilter { call in
                guard call.isMethodCall else { return false }
                bus.refuse(call, failed)
                return true
            }
            try bus.requestName(BusNames.service)
            while try bus.process() {}
            try bus.flush(until: EventLoop.clock + patienceWithBus)
            withExtendedLifetime(filter) {}
        } catch {
            // There is no bus, and so no call, or a daemon that was started by hand has the name.
        }
    }

    private static func hasFailed(_ bus: Bus) throws(BusFailure) -> Bool {
        let call = try bus.newPropertyCall(
            "ActiveState", of: "org.freedesktop.systemd1.Unit", destination: "org.freedesktop.systemd1",
            path: "/org/freedesktop/systemd1/unit/appstated_2eservice")
        let reply = try bus.call(call, timeout: patienceWithBus)
        return try reply.withEntered(.variant, "s") { () throws(BusFailure) in
            try reply.readString() == "failed"
        }
    }

    private static let patienceWithBus: UInt64 = 1_000_000
    private static let failed = MethodError(
        "org.freedesktop.systemd1.UnitFailed", "appstated has failed; see systemctl status appstated")

    /// Ends the holds of all applications, and restores their resources. Returns whether all of that is done.
    private static func areReleased(_ state: RuntimeState, _ journal: Journal) -> Bool {
        let proc = Proc()
        let found: [RuntimeState.Found]
        do throws(KernelFailure) {
            found = try state.found().map { name throws(KernelFailure) in try state.read(name) }
        } catch {
            journal.log(.error, "\(error)")
            return false
        }
        // A process that is no longer an application may belong to another application.
        let mains = Set(found.filter(\.isApplication).compactMap(\.main))
        let slices = SliceProtection(journal: journal)
        var isDone = true
        for entry in found {
            var originals = Originals(entry.record)
            slices.restore(originals)
            let owner = entry.user ?? .max
            for note in originals.restore(proc, owner: owner, isForeign: mains.contains) {
                journal.log(.notice, "application \(entry.name) of a daemon that has exited: \(note)")
                // What is not wholly its user's, we do not restore.
                if case .failed(let failure) = note, failure.errno != EPERM { isDone = false }
            }
            do throws(KernelFailure) {
                let done = try entry.release(
                    sparingMain: entry.isStoppedByOthers, proc: proc, isForeign: mains.contains)
                if let done {
                    journal.log(.notice, "application \(entry.name) of a daemon that has exited: \(done)")
                }
                state.noteReleased(entry)
            } catch {
                journal.log(.warning, "application \(entry.name) of a daemon that has exited: \(error)")
                isDone = false
            }
        }
        return isDone
    }

    private static func areMarkedThawed(_ journal: Journal) -> Bool {
        let (thawed, failure) = Hold.thawMarked()
        for cgroup in thawed { journal.log(.notice, "thawed \(cgroup), which a daemon had left frozen") }
        if let failure { journal.log(.warning, "\(failure)") }
        return failure == nil
    }
}

extension RuntimeState {
    /// The application stays registered for the next daemon, without a hold.
    fileprivate func noteReleased(_ entry: Found) {
        guard entry.isApplication, let number = UInt32(entry.name) else { return remove(named: entry.name) }
        let lines = entry.record.lines.compactMap { line -> Record.Line? in
            switch line.key {
            case "hold": nil
            case "enforcement": Record.Line("enforcement", "none", "request")
            default: Hold.isOne(line) ? nil : line
            }
        }
        if write(ApplicationNumber(number), Record(lines), nil) != nil { remove(named: entry.name) }
    }
}
