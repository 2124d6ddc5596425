import CWayland
import Linux

/// Watches the windows of a Wayland compositor that implements zwlr_foreign_toplevel_manager_v1, as those built on
/// wlroots do: labwc, Wayfire and others; or of COSMIC, which has protocols of its own. Xwayland's windows are among them.
///
/// A window that is not minimized counts as visible, because the protocol does not report workspaces; COSMIC does. No
/// protocol reports the process of a window: `WindowOwners` determines it.
public final class ForeignToplevelObserver: WindowObserver {
    public let system = WindowSystem.foreignToplevel
    public private(set) var windows: [ObservedWindow] = []
    private let connection: WaylandConnection
    private var owners: WindowOwners
    /// The seat whose focus goes to activated windows; bound when the first one is activated.
    private var seat: OpaquePointer?
    private var toplevels: [OpaquePointer: Toplevel] = [:]
    /// Nil: the compositor has wlroots' protocol.
    private var cosmic: Cosmic?
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

    private struct Cosmic {
        let info: OpaquePointer
        /// Takes requests.
        let manager: OpaquePointer?
        /// What extends the windows of ext_foreign_toplevel_list_v1.
        var extensions: [OpaquePointer: OpaquePointer] = [:]
        /// The workspaces that are shown.
        var shown: Set<OpaquePointer> = []
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
        if let manager = connection.bind(cwayland_toplevel_manager_interface()) {
            listen(toManager: manager)
        } else if !followCosmic() {
            throw .unsupported(
                "the compositor at WAYLAND_DISPLAY=\(connection.name) lacks zwlr_foreign_toplevel_manager_v1 and "
                    + "version 2 of zcosmic_toplevel_info_v1")
        }
        do throws(ObserverFailure) {
            try connection.synchronize()
            // COSMIC is asked about each window that it lists.
            if cosmic != nil { try connection.synchronize() }
            try dispatch()
        } catch .ended(let why) {
            throw .unreachable(why)
        }
    }

    /// The events have the same numbers in both protocols.
    private func listen(toManager manager: OpaquePointer) {
        connection.listen(to: manager) { [unowned self] event, arguments in
            switch event {
            case CWAYLAND_TOPLEVEL_MANAGER_TOPLEVEL.rawValue: welcome(arguments[0].o)
            case CWAYLAND_TOPLEVEL_MANAGER_FINISHED.rawValue: isFinished = true
            default: break
            }
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
            if let cosmic {
                ask(CWAYLAND_COSMIC_MANAGER_SET_MINIMIZED, about: handle, cosmic)
            } else {
                connection.ask(CWAYLAND_TOPLEVEL_SET_MINIMIZED.rawValue, of: handle)
            }
        }
    }

    public func activate(_ windows: [UInt64], token: String?) throws(ObserverFailure) {
        seat = seat ?? connection.bind(cwayland_seat_interface())
        guard let seat else { throw .unsupported("\(subject) has no seat that a window could be active on") }
        for number in windows {
            for (handle, toplevel) in toplevels where toplevel.number == number {
                if let cosmic {
                    ask(CWAYLAND_COSMIC_MANAGER_UNSET_MINIMIZED, about: handle, cosmic)
                    ask(CWAYLAND_COSMIC_MANAGER_ACTIVATE, about: handle, cosmic, [wl_argument(o: seat)])
                    continue
                }
                connection.ask(CWAYLAND_TOPLEVEL_UNSET_MINIMIZED.rawValue, of: handle)
                connection.ask(CWAYLAND_TOPLEVEL_ACTIVATE.rawValue, of: handle, [wl_argument(o: seat)])
            }
        }
    }

    private func show() {
        attribute()
        windows = Array(inOrder.picture(showing: cosmic?.shown ?? []).prefix(ObservedWindow.mostWindows))
    }

    /// Windows whose owners could not be looked for would count as hidden.
    public var isBlind: Bool {
        isUnattributed && toplevels.values.contains { $0.state != nil && $0.owners.isEmpty }
    }

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
        if cosmic != nil { return extend(handle) }
        connection.listen(to: handle) { [unowned self] event, arguments in take(event, arguments, handle) }
    }

    private func take(
        _ event: UInt32, _ arguments: UnsafeMutablePointer<wl_argument>, _ handle: OpaquePointer
    ) {
        switch event {
        case CWAYLAND_TOPLEVEL_TITLE.rawValue: toplevels[handle]?.pending.title = arguments[0].text
        case CWAYLAND_TOPLEVEL_APP_ID.rawValue: toplevels[handle]?.pending.appID = arguments[0].text
        case CWAYLAND_TOPLEVEL_STATE.rawValue:
            toplevels[handle]?.pending.take(states: arguments[0].numbers)
        case CWAYLAND_TOPLEVEL_DONE.rawValue: commit(handle)
        case CWAYLAND_TOPLEVEL_CLOSED.rawValue: close(handle, by: CWAYLAND_TOPLEVEL_DESTROY.rawValue)
        default: break
        }
    }

    private func commit(_ handle: OpaquePointer) {
        let before = toplevels[handle]?.state
        toplevels[handle]?.commit(&activations)
        if before?.appID != toplevels[handle]?.state?.appID { changes.named.insert(handle) }
    }

    private func close(_ handle: OpaquePointer, by request: UInt32) {
        toplevels[handle] = nil
        changes.named.remove(handle)
        changes.isSettling = true
        connection.release(handle, by: request)
    }

    // MARK: COSMIC

    /// - Returns: whether the compositor has its protocols.
    private func followCosmic() -> Bool {
        // It reports only workspaces that the client knows.
        let workspaces = connection.bind(cwayland_workspace_manager_interface())
        guard let info = connection.bind(cwayland_cosmic_info_interface()), wl_proxy_get_version(info) >= 2,
            let list = connection.bind(cwayland_ext_toplevel_list_interface())
        else { return false }
        cosmic = Cosmic(info: info, manager: connection.bind(cwayland_cosmic_manager_interface()))
        if let workspaces {
            connection.listen(to: workspaces) { [unowned self] event, arguments in
                if event == CWAYLAND_WORKSPACE_MANAGER_WORKSPACE.rawValue, let workspace = arguments[0].o {
                    follow(workspace: workspace)
                }
            }
        }
        connection.listen(to: info) { [unowned self] event, _ in
            guard event == CWAYLAND_COSMIC_INFO_DONE.rawValue else { return }
            for handle in toplevels.keys { commit(handle) }
        }
        listen(toManager: list)
        return true
    }

    private func follow(workspace: OpaquePointer) {
        connection.listen(to: workspace) { [unowned self] event, arguments in
            switch event {
            case CWAYLAND_WORKSPACE_STATE.rawValue
            where arguments[0].u & CWAYLAND_WORKSPACE_ACTIVE.rawValue != 0:
                cosmic?.shown.insert(workspace)
            case CWAYLAND_WORKSPACE_STATE.rawValue: cosmic?.shown.remove(workspace)
            case CWAYLAND_WORKSPACE_REMOVED.rawValue:
                cosmic?.shown.remove(workspace)
                for handle in toplevels.keys { toplevels[handle]?.workspaces.remove(workspace) }
                connection.release(workspace, by: CWAYLAND_WORKSPACE_DESTROY.rawValue)
            default: break
            }
        }
    }

    private func extend(_ handle: OpaquePointer) {
        connection.listen(to: handle) { [unowned self] event, arguments in
            switch event {
            case CWAYLAND_EXT_TOPLEVEL_TITLE.rawValue: toplevels[handle]?.pending.title = arguments[0].text
            case CWAYLAND_EXT_TOPLEVEL_APP_ID.rawValue: toplevels[handle]?.pending.appID = arguments[0].text
            case CWAYLAND_EXT_TOPLEVEL_DONE.rawValue: commit(handle)
            case CWAYLAND_EXT_TOPLEVEL_CLOSED.rawValue:
                if let more = cosmic?.extensions.removeValue(forKey: handle) {
                    connection.release(more, by: CWAYLAND_COSMIC_TOPLEVEL_DESTROY.rawValue)
                }
                close(handle, by: CWAYLAND_EXT_TOPLEVEL_DESTROY.rawValue)
            default: break
            }
        }
        guard let info = cosmic?.info,
            let more = connection.make(
                cwayland_cosmic_toplevel_interface(), by: CWAYLAND_COSMIC_INFO_GET_TOPLEVEL.rawValue,
                of: info,
                [wl_argument(o: nil), wl_argument(o: handle)])
        else { return }
        cosmic?.extensions[handle] = more
        connection.listen(to: more) { [unowned self] event, arguments in
            switch event {
            case CWAYLAND_COSMIC_TOPLEVEL_STATE.rawValue:
                toplevels[handle]?.pending.take(states: arguments[0].numbers)
            case CWAYLAND_COSMIC_TOPLEVEL_WORKSPACE_ENTER.rawValue:
                if let workspace = arguments[0].o { toplevels[handle]?.workspaces.insert(workspace) }
            case CWAYLAND_COSMIC_TOPLEVEL_WORKSPACE_LEAVE.rawValue:
                if let workspace = arguments[0].o { toplevels[handle]?.workspaces.remove(workspace) }
            default: break
            }
        }
    }

    private func ask(
        _ request: cwayland_cosmic_request, about handle: OpaquePointer, _ cosmic: Cosmic,
        _ arguments: [wl_argument] = []
    ) {
        guard let manager = cosmic.manager, let more = cosmic.extensions[handle] else { return }
        connection.ask(request.rawValue, of: manager, [wl_argument(o: more)] + arguments)
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
