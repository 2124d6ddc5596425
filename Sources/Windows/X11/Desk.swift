import CXCB

/// The window manager's reports about its windows, and their meaning.
struct Desk {
    /// The data about one window.
    struct Client {
        /// _NET_WM_STATE_HIDDEN: minimized in any way. WM_STATE and unmapping have other meanings: they also
        /// occur on another workspace. FOCUSED is not used, because some window managers leave it on two
        /// windows.
        var isHidden = false
        /// Nil: it is on all desktops, or there is only one.
        var desktop: UInt32?
        /// A panel or the desktop itself, which stays when the desktop is shown.
        var isFixture = false
        var netName = ""
        var name = ""
        var windowClass = ""
        var process: Int32?
        /// False between two window managers.
        var isListed = true
    }

    /// In the order of the window manager, perhaps with some windows that are destroyed.
    var list: [xcb_window_t] = []
    var clients: [xcb_window_t: Client] = [:]
    /// Nil: none.
    var active: xcb_window_t?
    var current: UInt32?
    /// “Show desktop” mode is on. Not every window manager hides windows in this mode.
    var isShown = false

    /// _NET_WM_DESKTOP of a window that is on all of them (Extended Window Manager Hints).
    private static let allDesktops: UInt32 = 0xFFFF_FFFF

    var picture: [ObservedWindow] {
        list.compactMap { window in
            guard let client = clients[window] else { return nil }
            return ObservedWindow(
                number: UInt64(window), process: client.process, appID: client.windowClass,
                title: client.netName.isEmpty ? client.name : client.netName, focused: window == active,
                visible: isOnScreen(client), minimized: client.isHidden)
        }
    }

    /// The processes of panels and of the desktop itself.
    var fixtures: Set<Int32> { Set(clients.values.filter(\.isFixture).compactMap(\.process)) }

    /// The desktop of a window that is not on the visible desktop; nil: it is on the visible desktop.
    func elsewhere(_ client: Client) -> UInt32? {
        guard let desktop = client.desktop, let current, desktop != current, desktop != Self.allDesktops
        else {
            return nil
        }
        return desktop
    }

    private func isOnScreen(_ client: Client) -> Bool {
        if isShown && !client.isFixture { return false }
        guard let desktop = client.desktop, let current else { return true }
        return desktop == current || desktop == Self.allDesktops
    }
}
