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
        /// The X server shows it. Known only of windows that are not on the desktop that is said to be visible.
        var isViewable = false
        /// False between two window managers.
        var isListed = true
    }

    /// In the order of the window manager, perhaps with some windows that are destroyed.
    var list: [xcb_window_t] = []
    var clients: [xcb_window_t: Client] = [:]
    /// The windows that can be seen and that the window manager does not manage, without those of the desktop itself.
    var overrides: [xcb_window_t: Override] = [:]
    /// The one among them that has the X server's focus.
    var focusedOverride: xcb_window_t?
    /// Nil: none.
    var active: xcb_window_t?
    var current: UInt32?
    /// “Show desktop” mode is on. Not every window manager hides windows in this mode.
    var isShown = false

    /// The window manager leaves windows mapped that are on another desktop, so that the X server does not know.
    var leavesMapped = false

    /// A window that the window manager does not manage.
    struct Override {
        let process: Int32
        /// It covers a quarter of a monitor: it is no menu.
        let isLarge: Bool
    }

    /// The window managers that leave other desktops mapped, because they show pictures of them: how their names begin.
    static func leavesMapped(_ manager: String) -> Bool {
        ["GNOME Shell", "Mutter", "Muffin", "KWin", "compiz", "Compiz"].contains {
            manager.utf8.starts(with: $0.utf8)
        }
    }

    /// _NET_WM_DESKTOP of a window that is on all of them (Extended Window Manager Hints).
    private static let allDesktops: UInt32 = 0xFFFF_FFFF

    var picture: [ObservedWindow] {
        list.compactMap { window in
            guard let client = clients[window] else { return nil }
            return ObservedWindow(
                number: UInt64(window), process: client.process, appID: client.windowClass,
                title: client.netName.isEmpty ? client.name : client.netName, focused: window == active,
                visible: isOnScreen(client), minimized: client.isHidden)
        } + shownOverrides
    }

    private var shownOverrides: [ObservedWindow] {
        overrides.filter { $0.value.isLarge || $0.key == focusedOverride }.sorted { $0.key < $1.key }.map {
            ObservedWindow(number: UInt64($0.key), process: $0.value.process, isShared: true)
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

    /// Several monitors may show a desktop each, of which the window manager names one.
    private func isOnScreen(_ client: Client) -> Bool {
        isAway(client) ? client.isViewable && !leavesMapped : true
    }

    /// Whether it should not be visible, according to the window manager.
    func isAway(_ client: Client) -> Bool { isShown && !client.isFixture || elsewhere(client) != nil }
}
