import AppStateBus
import AppStateContract

/// The value of a property of a service, which is not started for this.
final class PropertyWatch {
    /// Nil: there is no service, or it has no such property.
    private(set) var value: Variant?
    /// The service has answered, or there is none.
    private(set) var isKnown = false
    private let peer: BusPeer
    private let place: (property: String, interface: String, path: String)
    private let bus: Bus
    private let changed: () -> Void
    private var question: Slot?

    /// - Parameters:
    ///   - rule: the match rule, after type and sender, of the service's signals after which the value may be another;
    ///     nil: PropertiesChanged of the object.
    ///   - failed: called when the bus does not report on the service.
    ///   - changed: called when the value is known, and when it has changed. May release the watch.
    init(
        _ property: String, of interface: String, at path: String, service: String, bus: Bus,
        rule: String? = nil, failed: @escaping (MethodError) -> Void, changed: @escaping () -> Void
    ) throws(BusFailure) {
        self.bus = bus
        self.changed = changed
        place = (property, interface, path)
        peer = BusPeer(service, bus: bus, failed: failed)
        peer.onOwnerChange { [weak self] in self?.update() }
        try peer.onSignal(
            rule
                ?? "path='\(path)',interface='\(BusNames.properties)',member='PropertiesChanged',arg0='\(interface)'"
        ) { [weak self] _ in self?.update() }
        try peer.start()
    }

    private func update() {
        question = nil
        guard peer.owner != nil else { return take(nil) }
        do throws(BusFailure) {
            let call = try bus.newPropertyCall(
                place.property, of: place.interface, destination: peer.name, path: place.path)
            try call.forbidStart()
            question = try bus.callAsync(call) { [weak self] reply in
                self?.take(reply.isError ? nil : try? reply.readVariant())
            }
        } catch {
            // The connection is lost, which is handled elsewhere.
            return
        }
    }

    private func take(_ value: Variant?) {
        guard !isKnown || value != self.value else { return }
        (self.value, isKnown) = (value, true)
        changed()
    }
}
