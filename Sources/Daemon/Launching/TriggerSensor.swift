import AppStateBus
import AppStateContract
import LifeCycle
import Systemd

/// Reports whether the network or mains power is there: a property of NetworkManager or of UPower. Each is watched only
/// while a scheduled launch waits for it.
final class TriggerSensor {
    private let bus: Bus
    private let journal: Journal
    private let report: (Fact) -> Void
    private var watches: [LaunchTrigger: ServiceProperty] = [:]
    /// The triggers that launches wait for.
    private var awaited: Set<LaunchTrigger> = []

    init(bus: Bus, journal: Journal, report: @escaping (Fact) -> Void) {
        self.bus = bus
        self.journal = journal
        self.report = report
    }

    /// Calls `answer` once it is known whether the service runs that reports this.
    func ask(_ trigger: LaunchTrigger, _ answer: @escaping (Bool) -> Void) {
        guard let watch = watch(trigger) else { return answer(false) }
        watch.whenFound { [weak self] isThere in
            answer(isThere)
            self?.stopUnneeded()
        }
    }

    func update(_ awaits: (LaunchTrigger) -> Bool) {
        let before = awaited
        awaited = Set(LaunchTrigger.allCases.filter { $0.source != nil && awaits($0) })
        if awaited == before { return }
        stopUnneeded()
        for trigger in awaited.subtracting(before) {
            if let isMet = watch(trigger)?.isMet { report(.condition(trigger, isMet)) }
        }
    }

    private func stopUnneeded() {
        watches = watches.filter { awaited.contains($0.key) || $0.value.isAsked }
    }

    private func watch(_ trigger: LaunchTrigger) -> ServiceProperty? {
        if let known = watches[trigger] { return known }
        guard let source = trigger.source else { return nil }
        let watch = ServiceProperty(source, bus: bus, journal: journal) { [weak self] isMet in
            guard let self, awaited.contains(trigger) else { return }
            report(.condition(trigger, isMet))
        }
        do throws(BusFailure) {
            try watch.start()
        } catch {
            journal.log(.warning, "cannot watch \(source.service): \(error)")
            return nil
        }
        watches[trigger] = watch
        return watch
    }
}

/// A property of a service on the system bus.
final class ServiceProperty {
    struct Source {
        let service: String
        let path: String
        let interface: String
        let property: String
        /// Whether a value is what launches wait for.
        let isMet: (Variant) -> Bool
    }

    private let source: Source
    private let peer: BusPeer
    private let journal: Journal
    private let report: (Bool) -> Void
    private var question: Slot?
    private var askers: [(Bool) -> Void] = []
    private var isFound = false
    /// nil: it is not known.
    private(set) var isMet: Bool?

    init(_ source: Source, bus: Bus, journal: Journal, report: @escaping (Bool) -> Void) {
        self.source = source
        self.journal = journal
        self.report = report
        peer = BusPeer(source.service, bus: bus, journal: journal)
    }

    func start() throws(BusFailure) {
        peer.onOwnerChange { [weak self] in self?.ownerChanged() }
        try peer.onSignal(
            "path='\(source.path)',interface='\(BusNames.properties)',member='PropertiesChanged',"
                + "arg0='\(source.interface)'"
        ) { [weak self] in self?.changed($0) }
        try peer.start()
    }

    /// Somebody waits to know whether the service runs.
    var isAsked: Bool { !askers.isEmpty }

    func whenFound(_ answer: @escaping (_ isThere: Bool) -> Void) {
        if isFound { answer(peer.owner != nil) } else { askers.append(answer) }
    }

    private func ownerChanged() {
        isFound = true
        let waiting = askers
        askers = []
        if peer.owner == nil {
            question = nil
            apply(false)
        } else {
            read()
        }
        for answer in waiting { answer(peer.owner != nil) }
    }

    private func read() {
        journal.attempt(.warning, "cannot ask \(source.service)") {
            question = try peer.call(source.path, BusNames.properties, "GetAll", source.interface) {
                [weak self] reply in
                guard let self else { return }
                question = nil
                if let error = reply.error {
                    return journal.log(
                        .warning, "\(source.service) does not report \(source.property): \(error)")
                }
                apply((try? reply.readDictionary()) ?? [])
            }
        }
    }

    private func changed(_ message: borrowing Message) {
        guard (try? message.skip("s")) != nil, let changes = try? message.readDictionary(),
            let invalidated = try? message.readStrings()
        else { return }
        if invalidated.contains(source.property) { return read() }
        apply(changes)
    }

    private func apply(_ values: [(key: String, value: Variant)]) {
        if let value = values.first(where: { $0.key == source.property })?.value {
            apply(source.isMet(value))
        }
    }

    private func apply(_ isMet: Bool) {
        if isMet == self.isMet { return }
        self.isMet = isMet
        report(isMet)
    }
}

extension LaunchTrigger {
    /// nil: no service reports it.
    var source: ServiceProperty.Source? {
        switch self {
        case .time: nil
        case .network:
            .init(
                service: "org.freedesktop.NetworkManager", path: "/org/freedesktop/NetworkManager",
                interface: "org.freedesktop.NetworkManager", property: "State"
            ) {
                // NM_STATE_CONNECTED_GLOBAL: the Internet can be reached, as far as NetworkManager checks that.
                if case .uint32(let state) = $0 { state >= 70 } else { false }
            }
        case .power:
            .init(
                service: "org.freedesktop.UPower", path: "/org/freedesktop/UPower",
                interface: "org.freedesktop.UPower", property: "OnBattery"
            ) { $0 == .bool(false) }
        }
    }
}
