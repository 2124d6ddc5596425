public import AppStateContract

/// The data of a call of `Register`.
public struct Registration: Equatable, Sendable {
    public var id: ApplicationID
    public var process: ProcessID
    public var user: UInt32
    public var session: SessionKey
    /// The process registers itself.
    public var byItself = false
    /// The connection that is the delegate from the start. If there is one, the launch lasts until
    /// `FinishLaunching`.
    public var delegate: ConnectionName?
    /// nil: `foreground` for a process that registers itself, because it is just being launched; `background` for a
    /// process that another process registers, because no window of it is known.
    public var launchMode: LaunchMode?
    /// nil: `automatic` for a process that registers itself, else `manual` (§ 4).
    public var suspension: SuspensionPolicy?
    public var reclaimable = true
    public var backgroundModes: [String] = []
    /// Another program registered the process on its own initiative. The process's own registration replaces
    /// it.
    public var adopted = false
    /// The session agent started it for `Launch`. Its own registration takes over this application.
    public var launched = false
    /// The items for which it was launched. Its delegate receives them once it has launched.
    public var deliveries: [Announcement] = []
    /// The launched wrapper that this process replaces.
    public var wrapper: ApplicationNumber?
    /// The process was found stopped.
    public var stopped = false
    /// An earlier run of the same id has saved state.
    public var isRestored = false

    var registrant: Registrant {
        adopted ? .adopter : launched ? .launcher : byItself ? .itself : .another
    }

    public init(id: ApplicationID, process: ProcessID, user: UInt32, session: SessionKey) {
        self.id = id
        self.process = process
        self.user = user
        self.session = session
    }
}

/// Who registered the process of an application.
enum Registrant: String, Sendable {
    case itself
    case another
    /// Another program, on its own initiative. The process may still register itself.
    case adopter
    /// The session agent, which has started it. The process has not registered itself yet.
    case launcher
}
