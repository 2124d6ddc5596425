import CWayland

/// Watches the selections of a Wayland compositor that has ext_data_control_v1 or zwlr_data_control_v1, as those built on
/// wlroots and KWin do.
///
/// The protocol reports that a selection was set or removed, but not by which client. A client may set a
/// selection only while it has the keyboard focus (wl_data_device.set_selection), so the process in front is
/// considered its owner. If a program such as a clipboard manager sets one by this protocol, the process in
/// front is kept running needlessly.
public final class DataControlObserver: SelectionObserver {
    public private(set) var owners: [Selection: Set<Int32>] = [:]
    public private(set) var changes: [Selection: UInt64] = [:]
    private let connection: WaylandConnection
    private let front: () -> Set<Int32>
    /// The owner of a selection that was set before we connected is unknown.
    private var isSettled = false
    private var isFinished = false

    /// Connects.
    ///
    /// - Parameters:
    ///   - display: as in WAYLAND_DISPLAY; nil for WAYLAND_DISPLAY itself.
    ///   - patience: how long the compositor may take for each answer, in microseconds; nil: as long as at the
    ///     beginning of a session.
    ///   - front: the processes of which one has the keyboard focus.
    /// - Throws: `unreachable` if no compositor answers, `unsupported` if it lacks the protocols.
    public init(
        display: String? = nil, patience: UInt64? = nil, front: @escaping () -> Set<Int32>
    ) throws(ObserverFailure) {
        self.front = front
        connection = try WaylandConnection(display: display, patience: patience ?? Patience.span)
        let families = [CWAYLAND_DATA_CONTROL_EXT, CWAYLAND_DATA_CONTROL_WLR].map { Int32($0.rawValue) }
        var found: (family: Int32, manager: OpaquePointer)?
        for family in families where found == nil {
            found = connection.bind(cwayland_data_control_manager_interface(family)).map { (family, $0) }
        }
        guard let (family, manager) = found, let seat = connection.bind(cwayland_seat_interface()),
            let device = connection.make(
                cwayland_data_control_device_interface(family),
                by: CWAYLAND_DATA_CONTROL_MANAGER_GET_DATA_DEVICE.rawValue, of: manager,
                [wl_argument(o: nil), wl_argument(o: seat)])
        else {
            throw .unsupported(
                "the compositor at WAYLAND_DISPLAY=\(connection.name) reports no change of the clipboard")
        }
        connection.listen(to: device) { [unowned self] event, arguments in take(event, arguments) }
        do throws(ObserverFailure) {
            try connection.synchronize()
        } catch .ended(let why) {
            throw .unreachable(why)
        }
        isSettled = true
    }

    public var subject: String { "selections of Wayland display \(connection.name)" }
    public var descriptor: Int32 { connection.descriptor }

    public func dispatch() throws(ObserverFailure) {
        do throws(ObserverFailure) {
            try connection.receive()
        } catch {
            throw .ended("\(subject): \(error)")
        }
        guard !isFinished else { throw .ended("\(subject) are no longer reported") }
    }

    private func take(_ event: UInt32, _ arguments: UnsafeMutablePointer<wl_argument>) {
        switch event {
        case CWAYLAND_DATA_CONTROL_DEVICE_SELECTION.rawValue: take(.clipboard, arguments[0].o)
        case CWAYLAND_DATA_CONTROL_DEVICE_PRIMARY_SELECTION.rawValue: take(.primary, arguments[0].o)
        case CWAYLAND_DATA_CONTROL_DEVICE_FINISHED.rawValue: isFinished = true
        // An offer has no meaning before an event names its selection.
        default: break
        }
    }

    private func take(_ selection: Selection, _ offer: OpaquePointer?) {
        if let offer { connection.release(offer, by: CWAYLAND_DATA_CONTROL_OFFER_DESTROY.rawValue) }
        guard isSettled else { return }
        owners[selection] = offer == nil ? nil : front()
        changes[selection, default: 0] += 1
    }
}
