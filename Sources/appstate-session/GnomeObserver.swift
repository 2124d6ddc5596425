import AppStateBus
import AppStateContract
import Glibc
import Windows

/// Watches the windows of GNOME Shell on Wayland, including Xwayland's, as our extension reports them on the session
/// bus (dbus/org.appstate1.Shell.xml).
///
/// The extension announces once that something has changed. After it was queried for all windows, it
/// announces the next change. There is therefore one query at a time, and one more for all changes in the
/// meantime.
final class GnomeObserver: WindowObserver {
    let system = WindowSystem.gnome
    private(set) var windows: [ObservedWindow] = []
    /// True until the extension has answered, and after it has gone because the user has disabled it or it
    /// has failed. GNOME Shell disables its extensions and enables them again when it locks the screen, if one of them is
    /// not for the lock screen.
    private(set) var isBlind = true
    let subject = "GNOME Shell"
    private let shell: SessionPeer
    /// Whether the extension is there.
    private var isTold = false
    private var watches: [Slot] = []
    private var question: Slot?
    /// Something has changed since the question was sent.
    private var isStale = false
    private var notices: [String] = []

    private static let extensionID = "appstate@appstate1.org"
    /// An answer is late only if the shell hangs, and then nothing happens to windows. So there is no time limit.
    private static let forEver = UInt64.max

    /// Connects, and asks for the windows. Nothing is known before the answer.
    ///
    /// - Parameter session: the session bus.
    /// - Throws: `unreachable` if there is no bus, `unsupported` if GNOME Shell is not on it.
    init(session: SessionBus) throws(ObserverFailure) {
        shell = try SessionPeer(subject, name: "org.gnome.Shell", session: session)
        do throws(BusFailure) {
            try watch()
        } catch {
            throw .unreachable("\(error)")
        }
        do throws(ObserverFailure) {
            try shell.begin()
        } catch {
            throw .unreachable("\(error)")
        }
    }

    var descriptor: Int32 { shell.descriptor }
    var desktopProcesses: Set<Int32> { [shell.process] }
    private var bus: Bus { shell.bus }

    func dispatch() throws(ObserverFailure) { try shell.dispatch() }

    func takeNotices() -> [String] {
        defer { notices = [] }
        return notices
    }

    func minimize(_ windows: [UInt64]) throws(ObserverFailure) { try tell(.minimize, windows) }

    func activate(_ windows: [UInt64], token: String?) throws(ObserverFailure) {
        try tell(.activate, windows)
    }

    private func tell(_ member: ShellMember, _ windows: [UInt64]) throws(ObserverFailure) {
        do throws(BusFailure) {
            let message = try newCall(member)
            try message.append(windows)
            try bus.send(message)
        } catch {
            throw .unreachable("\(error)")
        }
    }

    private func newCall(_ member: ShellMember) throws(BusFailure) -> Message {
        try bus.newCall(
            destination: shell.connection, path: BusNames.shellPath, interface: BusNames.shell,
            member: member.rawValue)
    }

    // MARK: The extension comes and goes

    /// The matches come before the first question: a change in between is seen twice rather than never.
    private func watch() throws(BusFailure) {
        watches = [
            try bus.watchOwner(of: BusNames.shell, failed: shell.refused) { [unowned self] _, owner in
                settle(owner)
            },
            try bus.match(
                "type='signal',sender='\(shell.connection)',path='\(BusNames.shellPath)',interface='\(BusNames.shell)',"
                    + "member='\(ShellMember.changed.rawValue)'",
                failed: shell.refused
            ) { [unowned self] message in
                if message.sender == shell.connection { ask() }
            },
        ]
        settle(try bus.owner(of: BusNames.shell))
    }

    private func settle(_ owner: String?) {
        defer { shell.ring() }
        question = nil
        isTold = owner == shell.connection
        if isTold {
            ask()
        } else {
            lose("enable its extension with \"gnome-extensions enable \(Self.extensionID)\"")
        }
    }

    private func lose(_ why: String) {
        isBlind = true
        notices.append("GNOME Shell does not report its windows: \(why)")
    }

    // MARK: Windows

    /// A change that is announced before the answer arrives may be part of the answer or not: GNOME Shell's interpreter
    /// sends an answer a moment after it has made it.
    private func ask() {
        guard isTold else { return }
        guard question == nil else {
            isStale = true
            return
        }
        isStale = false
        do throws(BusFailure) {
            question = try bus.callAsync(newCall(.listWindows), timeout: Self.forEver) {
                [unowned self] reply in
                question = nil
                take(reply)
                if isStale { ask() }
            }
        } catch {
            // The connection is lost; dispatch() notices that.
            lose("\(error)")
        }
    }

    private func take(_ reply: borrowing Message) {
        defer { shell.ring() }
        if let error = reply.error { return lose("\(error)") }
        do throws(BusFailure) {
            windows = try Self.windows(in: reply)
            isBlind = false
            // They are no longer valid.
            notices = []
        } catch {
            lose("\(error)")
        }
    }

    private static func windows(in message: borrowing Message) throws(BusFailure) -> [ObservedWindow] {
        var windows: [ObservedWindow] = []
        guard try message.enter(.array, "(tussbbb)") else {
            throw BusFailure(operation: "read", subject: ShellMember.listWindows.rawValue, errno: ENODATA)
        }
        while try message.enter(.struct, "tussbbb") {
            let (number, pid) = (try message.readUInt64(), try message.readUInt32())
            let window = ObservedWindow(
                number: number, process: Int32(exactly: pid).flatMap { $0 > 0 ? $0 : nil },
                appID: ObservedWindow.text(try message.readString().utf8),
                title: ObservedWindow.text(try message.readString().utf8), focused: try message.readBool(),
                visible: try message.readBool(), minimized: try message.readBool())
            try message.exit()
            windows.append(window)
        }
        return windows
    }
}
