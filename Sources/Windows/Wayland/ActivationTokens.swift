import CWayland

/// Requests tokens for started programs from a Wayland compositor, by xdg_activation_v1.
///
/// We have no surface with which the user has interacted, so the compositor alone decides whether a token has
/// an effect: compositors built on wlroots accept it, but KWin and GNOME Shell do not bring a window to the
/// front for it.
public final class ActivationTokens {
    private let connection: WaylandConnection
    private let activation: OpaquePointer
    private var pending: [OpaquePointer: (String?) -> Void] = [:]

    /// The most tokens that are requested at once.
    private static let mostPending = 64

    /// Connects.
    ///
    /// - Parameter display: as in WAYLAND_DISPLAY; nil for WAYLAND_DISPLAY itself.
    /// - Throws: `unreachable` if no compositor answers, `unsupported` if it lacks the protocol.
    public init(display: String? = nil) throws(ObserverFailure) {
        connection = try WaylandConnection(display: display)
        guard let activation = connection.bind(cwayland_activation_interface()) else {
            throw .unsupported("the compositor at WAYLAND_DISPLAY=\(connection.name) lacks xdg_activation_v1")
        }
        self.activation = activation
    }

    /// Readable when there is something to dispatch. Open while this value lives.
    public var descriptor: Int32 { connection.descriptor }

    /// Asks for a token.
    ///
    /// - Parameters:
    ///   - appID: the application that is started.
    ///   - answered: gets the token; nil: there is none.
    public func ask(for appID: String, _ answered: @escaping (String?) -> Void) {
        guard pending.count < Self.mostPending,
            let token = connection.make(
                cwayland_activation_token_interface(), by: CWAYLAND_ACTIVATION_GET_TOKEN.rawValue,
                of: activation, [wl_argument(o: nil)])
        else { return answered(nil) }
        pending[token] = answered
        connection.listen(to: token) { [unowned self] event, arguments in
            guard event == CWAYLAND_ACTIVATION_TOKEN_DONE.rawValue else { return }
            let text = arguments[0].text
            connection.release(token, by: CWAYLAND_ACTIVATION_TOKEN_DESTROY.rawValue)
            pending.removeValue(forKey: token)?(text.isEmpty ? nil : text)
        }
        appID.withCString { text in
            connection.ask(CWAYLAND_ACTIVATION_TOKEN_SET_APP_ID.rawValue, of: token, [wl_argument(s: text)])
        }
        connection.ask(CWAYLAND_ACTIVATION_TOKEN_COMMIT.rawValue, of: token)
    }

    /// Handles everything that has arrived.
    ///
    /// - Throws: `ended` when the compositor is gone; open requests are not answered then.
    public func dispatch() throws(ObserverFailure) { try connection.receive() }
}
