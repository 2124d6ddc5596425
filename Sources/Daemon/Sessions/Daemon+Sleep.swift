import LifeCycle
import Linux

extension Daemon {
    /// The `last-demand` of an application that delays the machine's sleep.
    private static let sleepDemand = "sleep"

    /// The machine is about to sleep. An application that delays this until it is ready must run to become ready, or
    /// the machine waits for it in vain (InhibitDelayMaxSec= of logind.conf(5)).
    func letDelayersRun() {
        inhibitors.readSleepDelays { [weak self] list in
            guard let self else { return }
            for delay in list { letRun(delay.pid, of: delay.user) }
        }
    }

    private func letRun(_ pid: Int32, of user: UInt32) {
        // An inhibitor may outlive its process: the number may be another user's process by now.
        guard table.all.contains(where: { $0.user == user }),
            let process = try? namedProcess(UInt32(bitPattern: pid)),
            (try? proc.status(pid).owner.isWholly(user)) == true,
            let number = core.machine.owner(of: process.lineage), core.application(number)?.user == user
        else { return }
        core.report(.needed(number, Self.sleepDemand))
    }
}
