import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Systemd

/// Reports when the machine is about to sleep, to each application whose rule says `SuspendWhen=sleep`, and when they may
/// run again: the machine is awake, and the network is back as far as NetworkManager knows.
///
/// It delays the machine's sleep until they are suspended. logind limits that (InhibitDelayMaxSec= of logind.conf(5)).
final class SleepSensor {
    private let bus: Bus
    private let logind: BusPeer
    private let inhibitors: Inhibitors
    private let journal: Journal
    private let now: () -> Microseconds
    private let core: Core
    /// The application that a process belongs to.
    private let application: (Inhibitors.Inhibitor) -> ApplicationNumber?
    /// logind's delay lock; nil: we have none.
    private var lock: Int32?
    private var question: Slot?
    private var phase = Phase.awake
    /// Those that were told, once before each sleep.
    private var told: Set<ApplicationNumber> = []
    private var network: ServiceProperty?
    private var timer: Timer?

    private enum Phase {
        case awake
        /// The applications are being suspended.
        case beginning
        /// The machine sleeps, or is about to.
        case asleep
        /// It is awake, and the network is not back. The applications wait until then at most.
        case waking(until: Microseconds)
    }

    /// How long applications wait for the network.
    private static let patience: Microseconds = 30_000_000
    private static let pause: Microseconds = 50_000

    init(
        loop: EventLoop, bus: Bus, logind: BusPeer, inhibitors: Inhibitors, journal: Journal,
        now: @escaping () -> Microseconds, core: Core,
        application: @escaping (Inhibitors.Inhibitor) -> ApplicationNumber?
    ) throws(BusFailure) {
        self.bus = bus
        self.logind = logind
        self.inhibitors = inhibitors
        self.journal = journal
        self.now = now
        self.core = core
        self.application = application
        timer = try loop.timer { [unowned self] in proceed() }
        logind.onOwnerChange { [unowned self] in
            release()
            takeLock()
        }
    }

    deinit { release() }

    /// Takes logind's `PrepareForSleep`.
    func take(begins: Bool) {
        if begins {
            told = []
            phase = .beginning
            watchNetwork()
            proceed()
        } else {
            takeLock()
            guard network != nil else { return end() }
            phase = .waking(until: now() + Self.patience)
            network?.whenFound { [weak self] isThere in isThere ? self?.proceed() : self?.end() }
        }
    }

    private func proceed() {
        switch phase {
        case .awake, .asleep: break
        case .beginning:
            let open = core.machine.suspendedForSleep.filter { !isDone($0) }
            guard !open.isEmpty else {
                phase = .asleep
                return release()
            }
            // An application that delays the sleep itself has something to do before it.
            inhibitors.readSleepDelays { [weak self] delays in self?.suspend(open, but: delays) }
        case .waking(let end):
            if network?.isMet == true || now() >= end { self.end() } else { timer?.arm(at: end) }
        }
    }

    private func isDone(_ number: ApplicationNumber) -> Bool {
        guard told.contains(number), let application = core.application(number) else { return false }
        // The hold is gone if it cannot be stopped.
        return application.isStopped || !application.holds.contains { $0.reason == .sleep }
    }

    private func suspend(_ numbers: [ApplicationNumber], but delays: [Inhibitors.Inhibitor]) {
        guard case .beginning = phase else { return }
        let delaying = Set(delays.compactMap(application))
        for number in numbers where !delaying.contains(number) && told.insert(number).inserted {
            core.report(.sleepBegins(number))
        }
        timer?.arm(at: now() + Self.pause)
    }

    private func end() {
        phase = .awake
        network = nil
        timer?.disarm()
        core.report(.sleepEnded)
    }

    private func watchNetwork() {
        guard network == nil, !core.machine.suspendedForSleep.isEmpty,
            let source = LaunchTrigger.network.source
        else { return }
        let watch = ServiceProperty(source, bus: bus, journal: journal) { [weak self] _ in self?.proceed() }
        journal.attempt(.notice, "the network is not watched") {
            try watch.start()
            network = watch
        }
    }

    // MARK: The lock

    private func takeLock() {
        guard logind.owner != nil, lock == nil, question == nil else { return }
        journal.attempt(.notice, "the machine's sleep is not delayed") {
            let call = try bus.newCall(
                destination: Logind.name, path: Logind.path, interface: Logind.manager, member: "Inhibit")
            try call.forbidStart()
            for text in ["sleep", "appstated", "suspends applications before the machine sleeps", "delay"] {
                try call.append(text)
            }
            question = try bus.callAsync(call) { [weak self] reply in
                guard let self else { return }
                question = nil
                if let error = reply.error {
                    journal.log(.info, "the machine's sleep is not delayed: \(error)")
                } else {
                    lock = try? reply.readDescriptor()
                }
            }
        }
    }

    private func release() {
        question = nil
        if let lock { close(lock) }
        lock = nil
    }
}
