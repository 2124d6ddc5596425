/// KWin's reports about its windows and desktops, and their meaning.
struct PlasmaDesk {
    /// The data about one window.
    struct Client {
        let number: UInt64
        var appID = ""
        var title = ""
        var process: Int32?
        var isActive = false
        var isMinimized = false
        var isOnAllDesktops = false
        /// A panel or the like, which stays when the desktop is shown. Some applications' windows count, too.
        var skipsTaskbar = false
        /// The desktops that it is on; empty: all.
        var desktops: Set<String> = []
        /// Its data has been completely reported at least once.
        var isComplete = false

        init(number: UInt64) { self.number = number }
    }

    var clients: [OpaquePointer: Client] = [:]
    /// The desktop that is shown; nil: unknown, or there are none.
    var current: String?
    /// “Show desktop” is on.
    var isShown = false

    var picture: [ObservedWindow] {
        clients.values.filter(\.isComplete).sorted { $0.number < $1.number }.map { client in
            ObservedWindow(
                number: client.number, process: client.process, appID: client.appID, title: client.title,
                focused: client.isActive, visible: isOnScreen(client), minimized: client.isMinimized)
        }
    }

    /// The processes of panels and of the desktop itself, whose windows are on all desktops, and not in the task bar.
    var fixtures: Set<Int32> {
        Set(clients.values.filter { $0.skipsTaskbar && $0.isOnAllDesktops }.compactMap(\.process))
    }

    private func isOnScreen(_ client: Client) -> Bool {
        if isShown, !client.skipsTaskbar { return false }
        guard !client.isOnAllDesktops, !client.desktops.isEmpty, let current else { return true }
        return client.desktops.contains(current)
    }
}
