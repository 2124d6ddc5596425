import AppStateBus
import AppStateContract
import Glibc
import Linux
import SessionRules
import Systemd
import Windows

/// Registers the applications of windows that nobody has registered, as far as the configuration names them
/// (`[Session] Adopt=`, or a rule).
///
/// Who is adopted stays so until its process ends or somebody unregisters it, with or without windows, and with or
/// without us: a registration is nobody's. What somebody else unregisters is not adopted again. Both outlast the connection
/// to the bus. Whoever registers itself in the place of what was adopted is not ours any more.
final class Adoption {
    /// nil: there is no connection.
    private var bus: Bus?
    private let journal: Journal
    private let log: ((String) -> Void)?
    private let proc = Proc()
    private var entries = DesktopEntries()
    private var configuration: Configuration
    /// All that are registered, by pid; nil: the daemon has not told yet.
    private var registered: [Int32: Registry.Entry]?
    private var adopted: [ProcessIdentity: Adopted] = [:]
    /// Those that are not to be adopted: the daemon has refused them, or somebody has unregistered them.
    private var declined: Set<ProcessIdentity> = []
    /// Those that we have unregistered ourselves, of which the daemon has not told yet.
    private var released: Set<Int32> = []
    private var windows: Set<Sight> = []
    private var desktop: Set<Int32> = []
    /// What was looked at, and needs no second look as long as nothing else changes.
    private var seen: Set<Sight> = []
    /// Those to adopt whose turn has not come yet, the oldest first: it may turn out that one is part of another.
    private var queue: [Candidate] = []
    private var calls: [ProcessIdentity: Slot] = [:]
    private var farewells: [Slot] = []

    /// A process, and what one of its windows says that it is.
    private struct Sight: Hashable {
        let pid: Int32
        let appID: String
    }

    private struct Adopted {
        let entry: Registry.Entry
        /// From the window's process to the application's.
        let lineage: [Int32]
        let traits: Traits
    }

    /// A connection to the bus may await 128 answers at once: dbus-daemon(1), "max_replies_per_connection". Others of
    /// ours need theirs.
    private static let mostCalls = 16
    /// So many processes are remembered after they were declined. Beyond that all are forgotten, and asked about once more.
    private static let mostDeclined = 1_024

    /// - Parameter log: gets a line for each that is adopted or let go.
    init(configuration: Configuration, journal: Journal, log: ((String) -> Void)?) {
        self.configuration = configuration
        self.journal = journal
        self.log = log
    }

    /// Takes another connection; nil: there is none. On it nobody has said yet who is registered.
    func use(_ bus: Bus?) {
        (calls, farewells) = ([:], [])
        learn(nil)
        self.bus = bus
    }

    /// Whether it must be known who is registered.
    var isWanted: Bool { isAsked || !adopted.isEmpty || !calls.isEmpty }

    private var isAsked: Bool { !configuration.adopt.isEmpty || !configuration.rules.isEmpty }

    /// A rule wants those that it is about to be applications.
    private func wants(_ id: String, _ traits: Traits) -> Bool {
        configuration.adopt.matches(anyOf: traits[.windowClass].union([id]))
            || !configuration.rules(for: traits).isEmpty
    }

    /// Takes the windows that there are; those that may be somebody else's make nobody an application.
    ///
    /// - Parameter desktop: the desktop's own processes; asked for only where somebody may be adopted.
    func look(at windows: [Report.Window], on desktop: @autoclosure () -> Set<Int32>) {
        guard isWanted else { return }
        let desktop = desktop()
        let sights = Set(
            windows.filter { !$0.observed.isShared }.compactMap { window in
                Int32(exactly: window.pid).map { Sight(pid: $0, appID: window.observed.appID) }
            })
        guard sights != self.windows || desktop != self.desktop else { return }
        if desktop != self.desktop { seen = [] }
        (self.windows, self.desktop) = (sights, desktop)
        seen.formIntersection(sights)
        adopt()
    }

    /// Takes all that are registered; nil: nobody knows.
    func learn(_ entries: [Int32: Registry.Entry]?) {
        let before = registered
        registered = entries
        guard let entries else {
            (released, queue, seen) = ([], [], [])
            return
        }
        adopted = adopted.filter { entries[$0.key.pid] == $0.value.entry }
        // It was not unregistered for good: by its own registration, say, which may end in its turn.
        declined = declined.filter { entries[$0.pid] == nil }
        if before == nil { letGo() }
        for pid in entries.keys where before?[pid] == nil { giveWay(to: pid) }
        // What belonged to one that is gone may be an application of its own now.
        if before?.keys.contains(where: { entries[$0] == nil }) ?? true { seen = [] }
        adopt()
    }

    /// It has been unregistered, and lives on.
    func leave(_ pid: Int32) {
        guard released.remove(pid) == nil, let process = try? proc.identity(of: pid) else { return }
        decline(process)
    }

    /// Takes another configuration: who was adopted and should not be any more is let go.
    func configure(_ configuration: Configuration) {
        self.configuration = configuration
        letGo()
        (declined, queue, seen) = ([], [], [])
        adopt()
    }

    // MARK: Adopting

    private func adopt() {
        guard let bus, let registered, isAsked else { return }
        let unseen = windows.subtracting(seen)
        if !unseen.isEmpty {
            seen = windows
            let desktop = DesktopProcesses(desktop, proc: proc)
            queue += unseen.filter { registered[$0.pid] == nil }.compactMap { sight in
                Candidate(windowOf: sight.pid, appID: sight.appID, on: desktop, proc: proc) {
                    entries.id(ofClass: $0, program: $1)
                }
            }.filter { wants($0.id.rawValue, $0.traits) }
            queue.sort { ($0.process.startTime, $0.process.pid) < ($1.process.startTime, $1.process.pid) }
        }
        for candidate in queue { attend(to: candidate, registered, over: bus) }
    }

    private func attend(
        to candidate: Candidate, _ registered: [Int32: Registry.Entry], over bus: Bus
    ) {
        let isAsked = calls[candidate.process] != nil
        let isSettled =
            isAsked || declined.contains(candidate.process)
            || candidate.lineage.contains { registered[$0.pid] != nil }
        guard
            isSettled
                || calls.count < Self.mostCalls && !candidate.lineage.contains(where: { calls[$0] != nil })
        else { return }
        queue.removeAll { $0 == candidate }
        if !isSettled { register(candidate, over: bus) }
    }

    private func register(_ candidate: Candidate, over bus: Bus) {
        let process = candidate.process
        do {
            // Opened first, then asked who it is: one that took the number before has another start time.
            let descriptor = try PidFD(pid: process.pid)
            guard try proc.identity(of: process.pid) == process else { return }
            // What rules say, `RuleKeeper` tells: it must not outlast them.
            let message = try bus.newCall(ManagerMethod.registerProcess)
            try message.append(candidate.id.rawValue)
            try message.append(descriptor: descriptor.rawValue)
            try message.appendDictionary([
                (RegisterOption.suspension.rawValue, .string(configuration.suspension.rawValue)),
                // It has not asked to be treated as an application.
                (RegisterOption.reclaimable.rawValue, .bool(false)),
                (RegisterOption.adopted.rawValue, .bool(true)),
            ])
            calls[process] = try bus.callAsync(message) { [unowned self] reply in
                calls[process] = nil
                if let error = reply.error { refused(candidate, error) } else { taken(candidate, reply) }
                adopt()
            }
        } catch {
            // It has ended, or the connection has, which somebody else is told of.
            journal.log(.debug, "\(error)")
        }
    }

    private func taken(_ candidate: Candidate, _ reply: borrowing Message) {
        guard let path = try? reply.readObjectPath() else { return }
        let main = candidate.lineage.prefix { $0 != candidate.process } + [candidate.process]
        let entry = Registry.Entry(name: candidate.id.rawValue, path: path)
        adopted[candidate.process] = Adopted(
            entry: entry, lineage: main.map(\.pid), traits: candidate.traits)
        log?("RegisterProcess \(candidate.id) pid \(candidate.process.pid)")
        journal.log(.info, "adopted \(candidate.id), process \(candidate.process.pid)")
        // The daemon tells of it only after this answer, and of others it may have told before.
        registered?[candidate.process.pid] = entry
        // The configuration may have changed since it was asked for.
        letGo()
        if let registered { for pid in registered.keys { giveWay(to: pid) } }
    }

    private func refused(_ candidate: Candidate, _ error: MethodError) {
        switch ErrorName(rawValue: error.name) {
        case .alreadyRegistered?, .noSuchProcess?:
            // It was faster itself, or has ended.
            journal.log(.debug, "\(candidate.id): \(error)")
        case nil:
            // Nobody is there; whoever comes says first who is registered.
            journal.log(.debug, "\(candidate.id): \(error)")
        case _?:
            journal.log(
                .notice, "\(candidate.id), process \(candidate.process.pid), is not adopted: \(error)")
            decline(candidate.process)
        }
    }

    private func decline(_ process: ProcessIdentity) {
        if declined.count >= Self.mostDeclined {
            declined = declined.filter { (try? proc.identity(of: $0.pid)) == $0 }
        }
        if declined.count >= Self.mostDeclined { declined = [] }
        declined.insert(process)
    }

    // MARK: Letting go

    /// Unregisters who was adopted and should not be any more; as soon as it is known who is registered.
    private func letGo() {
        guard registered != nil else { return }
        for (process, application) in adopted where !wants(application.entry.name, application.traits) {
            released.insert(process.pid)
            unregister(process, application.entry)
        }
    }

    /// A process has been registered that has, among those above it, one that was adopted for a window which is the
    /// newcomer's: what starts it in a sandbox, say. The window is an application's without our doing then.
    private func giveWay(to pid: Int32) {
        for (process, application) in adopted
        where process.pid != pid && application.lineage.contains(pid) && !hasWindow(process) {
            unregister(process, application.entry)
        }
    }

    /// Whether one of the windows is its own, or a descendant's that is not registered.
    private func hasWindow(_ process: ProcessIdentity) -> Bool {
        windows.contains { window in
            proc.lineage(of: window.pid).first { registered?[$0.pid] != nil || $0 == process } == process
        }
    }

    private func unregister(_ process: ProcessIdentity, _ application: Registry.Entry) {
        adopted[process] = nil
        guard let bus else { return }
        do {
            let message = try bus.newCall(ApplicationMethod.unregister, at: application.path)
            let slot = try bus.callAsync(message) { [unowned self] reply in
                guard let error = reply.error else { return }
                // It is not told of: it has ended, or its process had registered itself in its place.
                released.remove(process.pid)
                journal.log(.debug, "Unregister \(application.name): \(error)")
            }
            farewells = farewells.suffix(Self.mostCalls) + [slot]
            log?("Unregister \(application.name) pid \(process.pid)")
            journal.log(.info, "\(application.name), process \(process.pid), is not adopted any more")
        } catch {
            journal.log(.debug, "\(error)")
        }
    }
}
