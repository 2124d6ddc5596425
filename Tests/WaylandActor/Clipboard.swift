import CWayland

/// Sets what others can paste, as `wl-copy` does: by zwlr_data_control_v1, which needs no input of a user.
final class Clipboard {
    private let connection: Connection
    private let manager: OpaquePointer
    private let device: OpaquePointer
    private let source = Protocol.describe(
        "zwlr_data_control_source_v1", requests: [("offer", "s", []), ("destroy", "", [])],
        events: [("send", "sh", []), ("cancelled", "", [])])

    init?(_ connection: Connection) {
        let family = Int32(CWAYLAND_DATA_CONTROL_WLR.rawValue)
        guard let manager = connection.bind(cwayland_data_control_manager_interface(family), version: 2),
            let seat = connection.bind(Protocol.own(wl_seat_interface)),
            let device = connection.ask(
                manager, CWAYLAND_DATA_CONTROL_MANAGER_GET_DATA_DEVICE.rawValue,
                [wl_argument(o: nil), wl_argument(o: seat)],
                makes: cwayland_data_control_device_interface(family))
        else { return nil }
        (self.connection, self.manager, self.device) = (connection, manager, device)
    }

    /// Offers a text, or takes back what is offered.
    func set(isPrimary: Bool, toText: Bool) {
        let offer =
            toText
            ? connection.ask(
                manager, CWAYLAND_DATA_CONTROL_MANAGER_CREATE_DATA_SOURCE.rawValue, [wl_argument(o: nil)],
                makes: source) : nil
        if let offer { connection.ask(offer, 0, text: "text/plain") }
        let request =
            isPrimary
            ? CWAYLAND_DATA_CONTROL_DEVICE_SET_PRIMARY_SELECTION.rawValue
            : CWAYLAND_DATA_CONTROL_DEVICE_SET_SELECTION.rawValue
        connection.ask(device, request, [wl_argument(o: offer)])
    }
}
