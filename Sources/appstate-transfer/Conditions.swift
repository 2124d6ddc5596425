import AppStateBus
import AppStateContract
import Systemd

/// Whether the machine is online, and on what terms: NetworkManager's and UPower's words, where they run. Neither is
/// started for this.
final class Conditions {
    private(set) var isOnline = true
    private(set) var isMetered = false
    private(set) var isOnBattery = false
    private let journal: Journal
    private let changed: () -> Void
    private var peers: [BusPeer] = []
    private var questions: [String: Slot] = [:]

    /// - Parameter changed: called when the machine is online again, or the terms have changed.
    init(bus: Bus, journal: Journal, changed: @escaping () -> Void) throws(BusFailure) {
        self.journal = journal
        self.changed = changed
        try watch("org.freedesktop.NetworkManager", "/org/freedesktop/NetworkManager", bus) {
            [unowned self] values in
            var (online, metered) = (true, false)
            for (key, value) in values {
                switch (key, value) {
                // NM_STATE_CONNECTED_LOCAL; below it, there is no connection. NM_STATE_UNKNOWN says nothing.
                case ("State", .uint32(let state)): online = state == 0 || state >= 50
                // NM_METERED_YES, and GUESS_YES.
                case ("Metered", .uint32(let state)): metered = state == 1 || state == 3
                default: break
                }
            }
            (isOnline, isMetered) = (online, metered)
        }
        try watch("org.freedesktop.UPower", "/org/freedesktop/UPower", bus) { [unowned self] values in
            isOnBattery = values.contains { $0.key == "OnBattery" && $0.value == .bool(true) }
        }
    }

    /// What a transfer lacks; nil: nothing.
    func need(of record: Record) -> TransferNeed? {
        if !isOnline { return .network }
        if isMetered, record.onlyUnmetered || record.isDiscretionary { return .unmetered }
        return isOnBattery && record.isDiscretionary ? .mains : nil
    }

    private func watch(
        _ name: String, _ path: String, _ bus: Bus,
        take: @escaping (_ properties: [(key: String, value: Variant)]) -> Void
    ) throws(BusFailure) {
        let peer = BusPeer(name, bus: bus) { [journal] in
            journal.log(.notice, "the bus does not report on \(name): \($0)")
        }
        let ask = { [unowned self, unowned peer] in
            guard peer.owner != nil else {
                take([])
                return changed()
            }
            questions[name] = try? peer.call(path, "org.freedesktop.DBus.Properties", "GetAll", name) {
                reply in
                guard !reply.isError, let properties = try? reply.readDictionary() else { return }
                take(properties)
                self.changed()
            }
        }
        peer.onOwnerChange(ask)
        try peer.onSignal(
            "path='\(path)',interface='org.freedesktop.DBus.Properties',member='PropertiesChanged',arg0='\(name)'"
        ) { _ in ask() }
        try peer.start()
        peers.append(peer)
    }
}
