import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux

/// A bus connection that has called the daemon: its identity according to the bus, and its subscriptions.
final class Connection {
    let name: ConnectionName
    let user: UInt32
    let pid: Int32
    /// Its process and the process's ancestors at the first call; empty if the process was gone.
    let lineage: [ProcessID]
    let confinement: Confinement
    /// Behind a proxy: the application that the connection registered, or that was found to be the only one behind the
    /// proxy.
    var application: ApplicationNumber?

    /// The session of its process, until logind reports that sessions have changed.
    var session: (key: SessionKey, readAt: Microseconds)?

    /// The sandbox of its process. The same uid does not mean the same trust: a sandboxed process may use the
    /// delegate's methods for applications in the same sandbox, and nothing else.
    enum Confinement {
        /// In no sandbox.
        case none
        case within(Sandbox)
        /// The proxy of a Flatpak instance. It is outside the sandbox and in the instance's unit, and every
        /// process in the sandbox uses it.
        case proxy(unit: String)
        /// The process cannot be examined.
        case unknown
    }

    var isSandboxed: Bool {
        if case .none = confinement { return false }
        return true
    }

    /// `Subscribe` was called: the connection gets every signal about every application it may see.
    var isSubscribed = false
    /// `GetManagedObjects` was called: the connection gets the signals that keep an object manager's cache
    /// correct.
    var followsObjects = false
    /// The applications of a sandboxed connection's process that `GetManagedObjects` returned, or that were registered
    /// since: it may see no others.
    var listedOwn: Set<ApplicationNumber> = []
    /// `GetAll` was called on these applications, on these that the connection's process belongs to, and on the
    /// Manager.
    var followedApplications: Set<ApplicationNumber> = []
    var followedOwn: Set<ApplicationNumber> = []
    var followsManager = false

    /// The pidfd that the bus gave, where the bus does so (dbus 1.15.8 and later).
    private let descriptor: Descriptor?

    /// Throws if no descriptors are left to examine the process. It must be examined again later.
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
        // The data that was read belongs to the process that the kernel held for the bus, unless that process
        // has ended.
        let hasEnded = number.map(Self.hasEnded) ?? false
        lineage = hasEnded ? [] : seen
        confinement = hasEnded ? .unknown : found
    }

    /// pidfd_open(2): a pidfd is readable once its process has ended.
    private static func hasEnded(_ pidDescriptor: Int32) -> Bool {
        var entry = pollfd(fd: pidDescriptor, events: Int16(POLLIN), revents: 0)
        return poll(&entry, 1, 0) == 1
    }

    /// A connection can outlive the process that opened it, in the hands of another process. If the process with that
    /// number belongs to another user than the connection, the number has been reused. Only root's process may have
    /// changed its user.
    private static func confinement(
        _ pid: Int32, _ user: UInt32, _ securityLabel: String?, _ lineage: [ProcessID], _ proc: Proc
    ) throws(KernelFailure) -> Confinement {
        do throws(KernelFailure) {
            let own = try proc.status(getpid())
            let status = try proc.status(pid)
            guard user == 0 || [status.owner.effective, status.owner.real].contains(user),
                lineage.first == ProcessID(try proc.identity(of: pid))
            else { return .unknown }
            let isWithin = status.namespaceDepth > own.namespaceDepth
            var sandbox = try proc.sandbox(of: pid)
            sandbox.snap = securityLabel.flatMap(Sandbox.snap(ofLabel:)) ?? sandbox.snap
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

    /// Flatpak's proxy, which may be in a namespace of its own.
    private static let proxy = "xdg-dbus-proxy"

    /// A pidfd of the connection's process: a copy of the bus's pidfd, or one that is opened now. The caller
    /// compares it with `lineage` to verify the process.
    func openProcess() throws(KernelFailure) -> PidFD {
        guard let copy = try descriptor?.duplicate() else { return try PidFD(pid: pid) }
        return try PidFD(adopting: copy)
    }

    /// Whether it may see and manage a user's applications: its own user's, and root everybody's.
    func mayManage(user other: UInt32) -> Bool { !isSandboxed && (user == 0 || user == other) }

    /// It keeps a list of the existing applications.
    var isFollower: Bool { isSubscribed || followsObjects }

    /// It is notified of other events than those of its own application.
    var isSubscriber: Bool { isFollower || followsManager || !followedApplications.isEmpty }

    /// The application on whose behalf it calls, as far as that is known without an examination of processes. Behind a
    /// proxy, the lineage is the proxy's.
    func application(in machine: Machine) -> ApplicationNumber? {
        guard case .proxy = confinement else { return machine.owner(of: lineage) }
        let followed = followedOwn.union(listedOwn)
        return machine.application(servedBy: name)
            ?? [application, followed.count == 1 ? followed.first : nil].lazy.compactMap(\.self)
            .first { machine.applications[$0] != nil }
    }

    /// It is notified of changes of this application.
    func follows(_ application: ApplicationNumber) -> Bool {
        followedApplications.contains(application) || followedOwn.contains(application)
            || listedOwn.contains(application)
    }

    func unfollow(_ application: ApplicationNumber) {
        followedApplications.remove(application)
        followedOwn.remove(application)
        listedOwn.remove(application)
    }

    /// The holder's name of the holds that it requests. It names the user, because the connection of a busctl ends and
    /// its hold stays.
    var holder: String { "uid:\(user)" }
}
