import CWayland
import Linux

/// Watches the windows of a Wayland compositor that implements zwlr_foreign_toplevel_manager_v1, as those built on
/// wlroots do: labwc, Wayfire and others. Xwayland's windows are among them.
///
/// A window that is not minimized counts as visible, because the protocol does not report workspaces. It also
/// does not report the process of a window: `WindowOwners` determines it.
public final class ForeignToplevelObserver: WindowObserver {
    public let system = WindowSystem.foreignToplevel
    public private(set) var windows: [ObservedWindow] = []
    private let connection: WaylandConnection
    private var owners: WindowOwners
    /// The seat whose focus goes to activated windows; bound when the first one is activated.
    private var seat: OpaquePointer?
    private var toplevels: [OpaquePointer: Toplevel] = [:]
    private var lastNumber = WaylandConnection.firstNumber
    private var activations: UInt64 = 0
    private var isFinished = false
    private var changes = Changes()
    private var notices: [String] = []
    private var doubted: Set<String> = []
    /// The last search for the owners of windows has failed.
    private var isUnattributed = false

    /// The changes of windows since their owners were determined.
    private struct Changes {
        /// A change that may resolve an uncertain owner: a window has gone, or names have arrived.
        var isSettling = false
        /// Windows that have appeared, or have got another name.
        var named: Set<OpaquePointer> = []
    }

    /// The most windows that are watched; those beyond are released, and never reported.
    private static let mostToplevels = 4 * ObservedWindow.mostWindows

    /// Connects, and reads the present set.
    ///
    /// - Parameters:
    ///   - display: as in WAYLAND_DISPLAY; nil for WAYLAND_DISPLAY itself.
    ///   - x11Display: as in DISPLAY, of the compositor's Xwayland, whose clients have windows here too; nil: none.
    ///   - command: returns the name of the program that the desktop entry of an id starts; nil: there is none.
    /// - Throws: `unreachable` if no compositor answers, `unsupported` if it lacks the protocol.
    public init(
        display: String? = nil, x11Display: String? = nil,
        command: @escaping (String) -> String? = { _ in nil }
    ) throws(ObserverFailure) {
        connection = try WaylandConnection(display: display)
        owners = WindowOwners(
            services: [connection.service] + WindowOwners.services(ofX11: x11Display), command: command)
        guard let manager = connection.bind(cwayland_toplevel_manager_interface()) else {
            throw .unsupported(
                "the compositor at WAYLAND_DISPLAY=\(connection.name) lacks zwlr_foreign_toplevel_manager_v1")
        }
        connection.listen(to: manager) { [unowned self] event, arguments in
            switch event {
            case CWAYLAND_TOPLEVEL_MANAGER_TOPLEVEL.rawValue: welcome(arguments[0].o)
            case CWAYLAND_TOPLEVEL_MANAGER_FINISHED.rawValue: isFinished = true
            default: break
            }
        }
        do throws(ObserverFailure) {
            try connection.synchronize()
            try dispatch()
        } catch .ended(let why) {
            throw .unreachable(why)
        }
    }

    public var subject: String { "Wayland display \(connection.name)" }
    public var descriptor: Int32 { connection.descriptor }
    public var desktopProcesses: Set<Int32> { Set([connection.process].compactMap(\.self)) }

    public func dispatch() throws(ObserverFailure) {
        do throws(ObserverFailure) {
            try connection.receive()
        } catch {
            throw .ended("\(subject) has ended: \(error)")
        }
        guard !isFinished else { throw .ended("\(subject) no longer reports windows") }
        show()
    }

    public func minimize(_ windows: [UInt64]) throws(ObserverFailure) {
        for (handle, toplevel) in toplevels where windows.contains(toplevel.number) {
            connection.ask(CWAYLAND_TOPLEVEL_SET_MINIMIZED.rawValue, of: handle)
        }
    }

    public func activate(_ windows: [UInt64], token: String?) throws(ObserverFailure) {
        seat = seat ?? connection.bind(cwayland_seat_interface())
        guard let seat else { throw .unsupported("\(subject) has no seat that a window could be active on") }
        for number in windows {
            for (handle, toplevel) in toplevels where toplevel.number == number {
                connection.ask(CWAYLAND_TOPLEVEL_UNSET_MINIMIZED.rawValue, of: handle)
                connection.ask(CWAYLAND_TOPLEVEL_ACTIVATE.rawValue, of: handle, [wl_argument(o: seat)])
            }
        }
    }

    private func show() {
        attribute()
        windows = Array(inOrder.picture.prefix(ObservedWindow.mostWindows))
    }

    /// Windows whose owners could not be looked for would count as hidden.
    public var isBlind: Bool {
        isUnattributed && toplevels.values.contains { $0.state != nil && $0.owners.isEmpty }
    }
    public var isInterrupted: Bool { isBlind }

    private var isInDoubt: Bool { toplevels.values.contains { $0.owners.count > 1 } }

    public func learn(names: [Int32: String]) {
        guard names != owners.registered else { return }
        owners.registered = names
        changes.isSettling = true
        show()
    }

    public func takeNotices() -> [String] {
        defer { notices = [] }
        return notices
    }

    private var inOrder: [Toplevel] { toplevels.values.sorted { $0.number < $1.number } }

    // MARK: Changes

    private func welcome(_ handle: OpaquePointer?) {
        guard let handle else { return }
        guard toplevels.count < Self.mostToplevels else {
            connection.release(handle, by: CWAYLAND_TOPLEVEL_DESTROY.rawValue)
            return
        }
        lastNumber += 1
        toplevels[handle] = Toplevel(number: lastNumber)
        connection.listen(to: handle) { [unowned self] event, arguments in take(event, arguments, handle) }
    }

    private func take(
        _ event: UInt32, _ arguments: UnsafeMutablePointer<wl_argument>, _ handle: OpaquePointer
    ) {
        switch event {
        case CWAYLAND_TOPLEVEL_TITLE.rawValue: toplevels[handle]?.pending.title = arguments[0].text
        case CWAYLAND_TOPLEVEL_APP_ID.rawValue: toplevels[handle]?.pending.appID = arguments[0].text
        case CWAYLAND_TOPLEVEL_STATE.rawValue:
            let states = arguments[0].numbers
            toplevels[handle]?.pending.isMinimized = states.contains(
                CWAYLAND_TOPLEVEL_STATE_MINIMIZED.rawValue)
            toplevels[handle]?.pending.isActivated = states.contains(
                CWAYLAND_TOPLEVEL_STATE_ACTIVATED.rawValue)
        case CWAYLAND_TOPLEVEL_DONE.rawValue:
            let before = toplevels[handle]?.state
            toplevels[handle]?.commit(&activations)
            if before?.appID != toplevels[handle]?.state?.appID { changes.named.insert(handle) }
        case CWAYLAND_TOPLEVEL_CLOSED.rawValue:
            toplevels[handle] = nil
            changes.named.remove(handle)
            changes.isSettling = true
            connection.release(handle, by: CWAYLAND_TOPLEVEL_DESTROY.rawValue)
        default: break
        }
    }

    // MARK: Owners

    /// Finds the owners of windows that have appeared or got another name, and the remaining possible owners
    /// of other windows.
    private func attribute() {
        guard !changes.named.isEmpty || changes.isSettling && isInDoubt else {
            changes = Changes()
            return
        }
        do throws(KernelFailure) {
            try owners.refresh()
        } catch {
            // The kernel is asked again with the next window.
            isUnattributed = true
            say("the owners of windows cannot be found: \(error)", about: "")
            return
        }
        isUnattributed = false
        let named = changes.named
        changes = Changes()
        var known: [Question: [ProcessIdentity]] = [:]
        for (handle, toplevel) in toplevels {
            guard let state = toplevel.state else { continue }
            if toplevel.owners.count == 1, !named.contains(handle) { continue }
            let candidates = toplevel.candidates?.intersection(owners.clients) ?? owners.clients
            let question = Question(appID: state.appID, candidates: candidates)
            let found = known[question] ?? owners.of(state.appID, among: candidates)
            known[question] = found
            toplevels[handle]?.candidates = candidates
            toplevels[handle]?.owners = found
            sayDoubts(about: state.appID, found, isNew: toplevel.candidates == nil)
        }
    }

    private struct Question: Hashable {
        let appID: String
        let candidates: Set<ProcessIdentity>
    }

    private func sayDoubts(about appID: String, _ owners: [ProcessIdentity], isNew: Bool) {
        if owners.count > 1 {
            let pids = owners.map { "\($0.pid)" }.joined(separator: ", ")
            say(
                """
                windows of "\(appID)" may belong to any of the processes \(pids): as long as one is visible, all of \
                these processes count as visible, and none as focused
                """, about: appID)
        } else if owners.isEmpty, isNew {
            say("the owner of the windows of \"\(appID)\" is unknown", about: appID)
        }
    }

    /// Adds a notice, once for each subject.
    private func say(_ sentence: String, about subject: String) {
        guard doubted.count < ObservedWindow.mostWindows, doubted.insert(subject).inserted else { return }
        notices.append(sentence)
    }
}
