import CXCB

/// What the window manager reports about its windows, and what that means.
struct Desk {
    /// What is known of one window.
    struct Client {
        /// _NET_WM_STATE_HIDDEN: minimized, in whatever way. WM_STATE and unmapping mean something else: they come with
        /// another workspace too. FOCUSED is not used: some window managers leave it on two windows.
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
    /// “Show desktop” is on. Not every window manager hides windows for that.
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

    /// The desktop of a window that is not on the desktop that is shown; nil: it is on that.
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
