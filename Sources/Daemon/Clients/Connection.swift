import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux

/// A connection of the bus that has called us: who it is, as the bus says, and what it wants to hear.
final class Connection {
    let name: ConnectionName
    let user: UInt32
    let pid: Int32
    /// Its process and those above it when it first called; empty where the process was gone.
    let lineage: [ProcessID]
    let confinement: Confinement
    /// Behind a proxy: the application that it registered, which it speaks for.
    var application: ApplicationNumber?

    /// Where its process is. Same uid is not same trust: who is in a sandbox may use the delegate's methods for what is
    /// in the same one, and nothing else.
    enum Confinement {
        /// In no sandbox.
        case none
        case within(Sandbox)
        /// It is the proxy of a Flatpak's instance, outside of the sandbox and in its unit: whoever is in there speaks
        /// through it.
        case proxy(unit: String)
        /// It cannot be looked at.
        case unknown
    }

    var isSandboxed: Bool {
        if case .none = confinement { return false }
        return true
    }

    /// `Subscribe` was called: every signal about every application it may see.
    var isSubscribed = false
    /// `GetManagedObjects` was called: what keeps an object manager's picture true.
    var followsObjects = false
    /// `GetAll` was called on these applications, on those that its process belongs to, and on the Manager.
    var followedApplications: Set<ApplicationNumber> = []
    var followedOwn: Set<ApplicationNumber> = []
    var followsManager = false

    /// Other users' applications exist for it: what polkit last said of `observe`.
    var mayObserve = false
    /// Whether that still holds.
    var sight = Sight.open
    /// What polkit says has changed while it was being asked.
    var isSightStale = false

    /// It was refused to manage what is another's, and the journal has a line of it.
    var wasRefused = false

    enum Sight {
        /// Polkit was not asked, or may say something else now.
        case open
        /// The question is under way.
        case asked
        /// It holds until polkit says that something has changed.
        case settled
        /// No, unless somebody authenticates.
        case challenge
    }

    var flow = Flow()

    /// How far it reads what it is sent.
    struct Flow {
        /// Signals since the last ping was answered, or since one was sent.
        var sent = 0
        var ping: Slot?
        /// Something was kept from it: it gets `Resync` when it is back.
        var isWithheld = false
        /// It does not read: not even a delegate is sent more. One that was suspended may have a ping to
        /// answer and read all the same.
        var isCutOff: Bool { ping != nil && sent >= Self.window }

        /// A ping that stays unanswered for so many signals means that nobody reads (§ 3).
        static let window = 256
    }

    /// The pidfd that the bus gave, where it does (dbus 1.15.8 and later).
    private let descriptor: Descriptor?

    /// Throws where we have no descriptors left to look at it with: it is to be looked at once more then.
    init(name: ConnectionName, credentials: inout Credentials, proc: Proc) throws(KernelFailure) {
        self.name = name
        user = credentials.uid
        pid = credentials.pid
        let number = credentials.takePidDescriptor()
        if let number {
            descriptor = Descriptor(owning: number)
        } else {
            descriptor = nil
        }
        let seen = proc.lineage(of: credentials.pid).map(ProcessID.init)
        let found = try Self.confinement(
            credentials.pid, credentials.uid, credentials.securityLabel, seen, proc)
        // What was read is of the process that the kernel held for the bus, unless that has ended.
        let hasEnded = number.map(Self.hasEnded) ?? false
        lineage = hasEnded ? [] : seen
        confinement = hasEnded ? .unknown : found
    }

    /// pidfd_open(2): it can be read once the process has ended.
    private static func hasEnded(_ pidDescriptor: Int32) -> Bool {
        var look = pollfd(fd: pidDescriptor, events: Int16(POLLIN), revents: 0)
        return poll(&look, 1, 0) == 1
    }

    /// A connection can outlive the process that opened it, in the hands of another; and who is another user's than
    /// the connection has a number that is another's by now. Root's may have given that up.
    private static func confinement(
        _ pid: Int32, _ user: UInt32, _ securityLabel: String?, _ lineage: [ProcessID], _ proc: Proc
    ) throws(KernelFailure) -> Confinement {
        do throws(KernelFailure) {
            let own = try proc.status(getpid())
            let status = try proc.status(pid)
            guard user == 0 || [status.owner.effective, status.owner.real].contains(user),
                lineage.first == ProcessID(try proc.identity(of: pid))
            else { return .unknown }
            var sandbox = try proc.sandbox(of: pid)
            sandbox.snap = securityLabel.flatMap(Sandbox.snap(ofLabel:)) ?? sandbox.snap
            let isWithin = status.namespaceDepth > own.namespaceDepth
            if let unit = sandbox.flatpak {
                let program = isWithin ? try proc.program(of: pid) : Self.proxy
                if program == Self.proxy { return .proxy(unit: unit) }
            }
            return isWithin || sandbox.snap != nil ? .within(sandbox) : .none
        } catch {
            if error.isExhaustion { throw error }
            return .unknown
        }
    }

    /// Flatpak's, which may be in a namespace of its own.
    private static let proxy = "xdg-dbus-proxy"

    /// A pidfd of the connection's process: the bus's own, else one that is opened now; who it is of is for
    /// `lineage` to say.
    func openProcess() throws(KernelFailure) -> PidFD {
        guard let copy = try descriptor?.duplicate() else { return try PidFD(pid: pid) }
        return try PidFD(adopting: copy)
    }

    /// Root sees and does everything; a user what is the user's own.
    func mayManage(user other: UInt32) -> Bool { !isSandboxed && (user == 0 || user == other) }

    /// Root may do all, and a sandbox nothing to others, whatever polkit says.
    var hasRightsByPolkit: Bool { user != 0 && !isSandboxed }

    /// And what polkit lets it see.
    func maySee(user other: UInt32) -> Bool { mayManage(user: other) || mayObserve && !isSandboxed }

    /// It keeps a picture of the applications there are.
    var isFollower: Bool { isSubscribed || followsObjects }

    /// It is told of more than what becomes of itself.
    var isSubscriber: Bool { isFollower || followsManager || !followedApplications.isEmpty }

    /// It is told of changes of this one.
    func follows(_ application: ApplicationNumber) -> Bool {
        followedApplications.contains(application) || followedOwn.contains(application)
    }

    func unfollow(_ application: ApplicationNumber) {
        followedApplications.remove(application)
        followedOwn.remove(application)
    }

    /// How holds that it asks for are called: the person, not the connection, which a busctl leaves behind.
    var holder: String { "uid:\(user)" }
}
