import CWayland
import Linux

/// A window as zwlr_foreign_toplevel_handle_v1 reports it: changes take effect with `done`.
struct Toplevel {
    /// The reported state.
    struct State: Equatable {
        var appID = ""
        var title = ""
        var isMinimized = false
        var isActivated = false
        var isSticky = false

        /// COSMIC has the same states, and one more.
        mutating func take(states: [UInt32]) {
            isMinimized = states.contains(CWAYLAND_TOPLEVEL_STATE_MINIMIZED.rawValue)
            isActivated = states.contains(CWAYLAND_TOPLEVEL_STATE_ACTIVATED.rawValue)
            isSticky = states.contains(CWAYLAND_TOPLEVEL_STATE_STICKY.rawValue)
        }
    }

    let number: UInt64
    /// The state that was reported since the last `done`.
    var pending = State()
    /// Nil before the first `done`.
    private(set) var state: State?
    /// When it was activated, by the count of activations; nil while it is not.
    private(set) var activation: UInt64?
    /// The processes that may have created it: the clients that existed when it appeared, and still do. Nil
    /// until they were determined.
    var candidates: Set<ProcessIdentity>?
    /// The workspaces that it is on; empty: not known.
    var workspaces: Set<OpaquePointer> = []
    /// The candidates that match the app id.
    var owners: [ProcessIdentity] = []

    init(number: UInt64) { self.number = number }

    /// Applies the reported state. wlroots sends `done` to all clients whenever another one binds; this
    /// changes nothing.
    ///
    /// - Parameter activations: the count, which goes up when the window becomes activated.
    mutating func commit(_ activations: inout UInt64) {
        if !pending.isActivated {
            activation = nil
        } else if activation == nil {
            activations += 1
            activation = activations
        }
        state = pending
    }
}

extension Sequence<Toplevel> {
    /// The windows as they are reported.
    ///
    /// A window that may belong to several processes is reported as theirs: each such process has one window in place
    /// of all of these, which is visible while one of them is. This way no window that may be visible counts
    /// as hidden. The focus of such a window counts for no process.
    ///
    /// - Parameter workspaces: those that are shown.
    func picture(showing workspaces: Set<OpaquePointer> = []) -> [ObservedWindow] {
        // Each seat and, for some compositors, each output has an activated window: the last one counts. One that is
        // minimized does not have the focus.
        let focus = filter { $0.state?.isMinimized == false }.compactMap(\.activation).max()
        var picture: [ObservedWindow] = []
        var shares: [Int32: ObservedWindow] = [:]
        for toplevel in self {
            guard let state = toplevel.state else { continue }
            let isShown =
                state.isSticky || toplevel.workspaces.isEmpty
                || !toplevel.workspaces.isDisjoint(with: workspaces)
            if toplevel.owners.count > 1 {
                for owner in toplevel.owners {
                    shares[owner.pid] = share(state, owner.pid, shares[owner.pid], isShown)
                }
            } else {
                picture.append(
                    ObservedWindow(
                        number: toplevel.number, process: toplevel.owners.first?.pid, appID: state.appID,
                        title: state.title, focused: focus != nil && toplevel.activation == focus,
                        visible: isShown, minimized: state.isMinimized))
            }
        }
        return picture + shares.sorted { $0.key < $1.key }.map(\.value)
    }

    private func share(
        _ state: Toplevel.State, _ process: Int32, _ before: ObservedWindow?, _ isShown: Bool
    ) -> ObservedWindow {
        let appID = before.map { $0.appID == state.appID ? $0.appID : "" } ?? state.appID
        return ObservedWindow(
            // Above all numbers that are given to windows.
            number: 1 << 47 | UInt64(UInt32(bitPattern: process)), process: process, appID: appID,
            visible: isShown && !state.isMinimized || before?.visible ?? false,
            minimized: state.isMinimized && before?.minimized ?? true, isShared: true)
    }
}
