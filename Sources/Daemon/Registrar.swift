import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// A process that a caller wants to register, held by pidfd so that it cannot be mistaken for another one.
struct NamedProcess: ~Copyable {
    let descriptor: PidFD
    let stat: Proc.Stat
    let owner: Proc.Owner

    var identity: ProcessIdentity { stat.identity }
}

/// Registration: the caller, the process, and the options.
extension Daemon {
    /// The process that a caller means by a number; 0: the caller itself.
    func subject(pid: UInt32, of connection: Connection) throws(MethodError) -> NamedProcess {
        if pid == 0 {
            if case .proxy = connection.confinement {
                throw MethodError(
                    .invalidArgs,
                    "The caller is connected through its Flatpak's proxy, process \(connection.pid), which is not the "
                        + "application: call RegisterProcess with a pidfd of the application itself")
            }
            let subject = try subject(pid: connection.pid) { () throws(KernelFailure) in
                try connection.openProcess()
            }
            // This must be the process that opened the connection, not a later process with the same number.
            guard connection.lineage.first == ProcessID(subject.identity) else {
                throw MethodError(.noSuchProcess, "The caller's process \(connection.pid) has ended")
            }
            return subject
        }
        // What a sandboxed process may not register, it does not learn about either.
        if connection.isSandboxed, Int32(exactly: pid) != connection.pid { throw Self.onlyItself(pid) }
        guard let number = Int32(exactly: pid) else { throw MethodError(.noSuchProcess, "No process \(pid)") }
        return try subject(pid: number) { () throws(KernelFailure) in try PidFD(pid: number) }
    }

    /// The process of a pidfd that a caller passed. Takes the descriptor over.
    func subject(descriptor number: Int32) throws(MethodError) -> NamedProcess {
        let descriptor: PidFD
        let pid: Int32
        do {
            descriptor = try PidFD(adopting: Descriptor(owning: number))
        } catch  where error.isNoSuchProcess {
            throw MethodError(.noSuchProcess, "The process of the pidfd has ended")
        } catch  where error.isExhaustion {
            throw .exhausted(error)
        } catch {
            throw MethodError(.invalidArgs, "The descriptor passed is not a pidfd")
        }
        do {
            pid = try descriptor.pid()
        } catch {
            throw .unreachable(error, "The process of the pidfd has ended")
        }
        return try examine(descriptor, pid: pid)
    }

    private func subject(
        pid: Int32, _ open: () throws(KernelFailure) -> PidFD
    ) throws(MethodError) -> NamedProcess {
        let descriptor: PidFD
        do {
            descriptor = try open()
        } catch {
            // pidfd_open(2): EINVAL also for a thread that is not the leader of its group.
            throw .unreachable(error, "No process \(pid)")
        }
        return try examine(descriptor, pid: pid)
    }

    private func examine(_ descriptor: consuming PidFD, pid: Int32) throws(MethodError) -> NamedProcess {
        let stat: Proc.Stat
        let owner: Proc.Owner
        do {
            stat = try proc.stat(pid)
            owner = try proc.status(pid).owner
        } catch {
            throw .unreachable(error, "No process \(pid)")
        }
        // The process still exists after it was examined, so the data belongs to the process of the pidfd. A
        // zombie has exited, too.
        guard !descriptor.hasExited else { throw MethodError(.noSuchProcess, "Process \(pid) has ended") }
        return NamedProcess(descriptor: descriptor, stat: stat, owner: owner)
    }

    /// Answers the call with the new application's path, or throws and changes nothing.
    func register(
        _ call: borrowing Call, _ id: String, _ subject: consuming NamedProcess,
        _ options: [(key: String, value: Variant)], _ connection: Connection
    ) throws(MethodError) {
        let identity = subject.identity
        let isItself = isCaller(subject, connection)
        try checkRights(subject, connection, isItself: isItself)
        guard let id = ApplicationID(id) else { throw .notAnID(id) }
        try checkKind(subject)

        let options = try RegisterOptions(options, limit: core.machine.settings.limits.stringBytes)
        let user = subject.owner.real
        try checkRoom(LaunchOptions.bytes(of: options.launchOptions), of: user)
        var registration = Registration(
            id: id, process: ProcessID(identity), user: user,
            session: sessions.key(ofProcess: identity.pid, user: user))
        registration.byItself = isItself
        if options.delegate ?? isItself {
            // The same rule as for the delegate's methods, which it needs to finish launching.
            guard isItself || connection.lineage.contains(ProcessID(identity)), connection.user == user else {
                throw MethodError(
                    .accessDenied,
                    "Process \(connection.pid) of user \(connection.user) does not belong to process "
                        + "\(identity.pid) of user \(user): it cannot be its delegate"
                )
            }
            registration.delegate = connection.name
        }
        registration.launchMode = options.launchMode
        registration.suspension = options.suspension
        registration.reclaimable = options.reclaimable
        registration.backgroundModes = options.backgroundModes
        registration.adopted = options.adopted
        // A launched process finds the purpose of its launch in its launch options.
        let launched = launchedAs(registration, connection)
        let former = core.machine.application(of: registration.process)
        if !launched.isEmpty, registration.id != former?.id {
            registration.deliveries = LaunchRequest(launched).deliveries
        }
        if former == nil { registration.wrapper = wrapper(of: registration, connection)?.number }
        let number = try enroll(registration, subject, launched + options.launchOptions) { number in
            if case .proxy = connection.confinement, isItself { connection.application = number }
            reply(call, with: BusNames.path(ofApplication: number.rawValue))
        }
        if former?.number == number {
            executor.note([.launchOptions], of: number)
            step()
        }
    }

    /// Registers a process that is allowed to be an application.
    ///
    /// - Parameters:
    ///   - given: its launch options; if a name occurs twice, the first value counts.
    ///   - launch: the launch that started it.
    ///   - answered: called once it is recorded, before any client is notified.
    func enroll(
        _ registration: Registration, _ subject: consuming NamedProcess, _ given: [(String, Variant)],
        _ launch: Registered.Launch? = nil, answered: (ApplicationNumber) -> Void = { _ in }
    ) throws(MethodError) -> ApplicationNumber {
        var registration = registration
        let (identity, id, user) = (subject.identity, registration.id, registration.user)
        let isKnownByID = isKnown(identity.pid, by: id)
        let kept = isKnownByID ? KeptID(user: user, application: id) : nil
        registration.isRestored = kept.flatMap { keeper?.hasState($0) } ?? false
        // A process that was stopped with another application is released when it becomes an application
        // itself.
        registration.stopped =
            subject.stat.state == .stopped && !freezer.isStopped(identity)
        let options = Dictionary(given, uniquingKeysWith: { first, _ in first }).map { ($0.key, $0.value) }

        do {
            try processes.track(ProcessID(identity), subject.descriptor)
        } catch  where error.isExhaustion {
            throw .exhausted(error)
        } catch {
            throw MethodError(.failed, "\(error)")
        }
        sessions.attend(to: registration.session)
        var number: ApplicationNumber?
        do {
            try perform(.register(registration)) { answer in
                guard case .application(let new) = answer else { return }
                number = new
                // The registration takes over the application of the launch.
                if let known = table[new] { return known.add(options) }
                let run = begin(kept, options)
                let registered = Registered(
                    new, id: id, process: identity, user: user,
                    session: Login.session(ofProcess: identity.pid) ?? "",
                    unit: Login.unit(ofProcess: identity.pid) ?? "",
                    isToBeKept: kept != nil, launchOptions: run.options, launch: launch)
                registered.isKept = run.isKept
                registered.isKnownByID = isKnownByID
                executor.enroll(registered)
            } _: { answer in
                if case .application(let number) = answer { answered(number) }
            }
            reread(registration.process)
        } catch {
            letGo([registration.process])
            throw error
        }
        guard let number else { preconditionFailure("a registration answers with an application") }
        return number
    }

    /// The launch options of the application that a process's own registration takes over or replaces.
    private func launchedAs(
        _ registration: Registration, _ connection: Connection
    ) -> [(String, Variant)] {
        guard registration.byItself,
            let former = core.machine.application(of: registration.process)
                ?? wrapper(of: registration, connection),
            former.awaitsOwnRegistration
        else { return [] }
        return table[former.number]?.launchOptions ?? []
    }

    /// The application that was launched under the same id, and whose descendant registers itself. It may be a shell
    /// script that has started the program.
    private func wrapper(of registration: Registration, _ connection: Connection) -> Application? {
        guard registration.byItself, let number = core.machine.owner(of: connection.lineage),
            let application = core.machine.applications[number], application.awaitsOwnRegistration,
            application.id == registration.id, application.user == registration.user,
            // Any program may have started a sandbox since. While it is being launched, that is what it was launched
            // for.
            application.isBeingLaunched || !connection.isSandboxed
        else { return nil }
        return application
    }

    /// From now on its history and saved state are kept, if there is room. Returns whether they are, and its
    /// launch options.
    private func begin(
        _ kept: KeptID?, _ given: [(String, Variant)]
    ) -> (isKept: Bool, options: [(String, Variant)]) {
        // A client cannot set what is known about the previous run.
        let others = given.filter { LaunchOption(rawValue: $0.0) == nil }
        guard let keeper, let kept else { return (false, others) }
        let own = keeper.launchOptions(of: kept).map { ($0.key.rawValue, $0.value) }
        return keeper.begin(kept) ? (true, (others + own).sorted { $0.0 < $1.0 }) : (false, others)
    }

    /// A stop that was pending when the process was examined is still to come; the holds of a predecessor are
    /// lifted by now.
    private func reread(_ process: ProcessID) {
        if let number = core.machine.application(of: process)?.number { sensor.readStop(of: number) }
    }

    private func reply(_ call: borrowing Call, with path: String) {
        do {
            try call.reply { message throws(BusFailure) in try message.append(objectPath: path) }
        } catch {
            journal.log(.warning, "answer to \(call.member) of \(call.sender): \(error)")
        }
    }

    /// Whether a process is the caller. Behind a Flatpak's proxy, any process inside the same instance is: a
    /// pidfd of such a process can come only from there.
    private func isCaller(_ subject: borrowing NamedProcess, _ connection: Connection) -> Bool {
        guard case .proxy(let unit) = connection.confinement else {
            return connection.lineage.first == ProcessID(subject.identity)
        }
        guard subject.owner.isWholly(connection.user),
            let sandbox = try? proc.sandbox(of: subject.identity.pid), !subject.descriptor.hasExited
        else { return false }
        return access.isInside(sandbox, of: unit)
    }

    /// Limits the content that the daemon keeps for all of a user's applications.
    func checkRoom(_ bytes: Int, of user: UInt32) throws(MethodError) {
        guard bytes > 0 else { return }
        let kept = table.all.reduce(bytes) { $1.user == user ? $0 + $1.contentBytes : $0 }
        guard kept <= LaunchOptions.mostBytesPerUser else {
            throw MethodError(
                .limitsExceeded,
                "The launch-options and user activities of all applications of user \(user) would take more than "
                    + "\(LaunchOptions.mostBytesPerUser) bytes")
        }
    }

    /// The caller's user must own the process, or be root. This is checked before the caller gets any information
    /// about the process.
    private func checkRights(
        _ subject: borrowing NamedProcess, _ connection: Connection, isItself: Bool
    ) throws(MethodError) {
        let pid = subject.identity.pid
        if connection.isSandboxed && !isItself {
            throw Self.onlyItself(UInt32(pid))
        }
        if subject.owner.isWholly(connection.user) { return }
        guard connection.mayManage(user: 0) else {
            throw MethodError(.accessDenied, "Process \(pid) does not belong to user \(connection.user)")
        }
    }

    private static func onlyItself(_ pid: UInt32) -> MethodError {
        MethodError(.accessDenied, "A sandboxed process may register only itself, not process \(pid)")
    }

    func checkKind(_ subject: borrowing NamedProcess) throws(MethodError) {
        let pid = subject.identity.pid
        if subject.stat.isKernelThread {
            throw MethodError(.invalidArgs, "Process \(pid) is a kernel thread")
        }
        if pid == 1 { throw MethodError(.invalidArgs, "Process 1 is init") }
        if pid == getpid() { throw MethodError(.invalidArgs, "Process \(pid) is appstated itself") }
        guard subject.owner.isWholly(subject.owner.real) else {
            throw MethodError(.invalidArgs, "Process \(pid) runs with the rights of more than one user")
        }
    }

    // MARK: Tracking

    /// The most ancestors of a reported process that are examined. A process whose window is further down
    /// does not belong to the application in a meaningful way.
    private static let deepestLineage = 32

    /// A process that a reporter names, with its ancestors.
    func reportedProcess(
        _ pid: UInt32, by reporter: ReporterIdentity
    ) throws(MethodError) -> ReportedProcess {
        let (lineage, user) = try namedProcess(pid, depth: Self.deepestLineage)
        // Only root reports for the session that contains the process.
        guard reporter.user == 0 else {
            return ReportedProcess(lineage: lineage, user: user, session: reporter.session)
        }
        let session = sessions.key(ofProcess: lineage[0].pid, user: user)
        sessions.attend(to: session)
        return ReportedProcess(lineage: lineage, user: user, session: session)
    }

    /// A process that a caller names, with its ancestors, and its owner. For an orphan, the main process of the application
    /// in whose own unit it is counts in place of the ancestors that have ended.
    func namedProcess(
        _ pid: UInt32, depth: Int = 64
    ) throws(MethodError) -> (lineage: [ProcessID], user: UInt32) {
        let gone = "No process \(pid)"
        guard pid != 0, let number = Int32(exactly: pid) else { throw MethodError(.noSuchProcess, gone) }
        let status: Proc.Status
        let stat: Proc.Stat
        do {
            status = try proc.status(number)
            stat = try proc.stat(number)
        } catch {
            throw .unreachable(error, gone)
        }
        guard stat.state != .zombie, stat.state != .dead, status.threadGroup == number else {
            throw MethodError(.noSuchProcess, gone)
        }
        var lineage = proc.lineage(of: number, limit: depth).map(ProcessID.init)
        let process = ProcessID(stat.identity)
        if lineage.first != process { lineage = [process] }
        let user = status.owner.effective
        if core.machine.owner(of: lineage) == nil, let main = table.main(around: process.identity, of: user) {
            lineage.append(ProcessID(main))
        }
        return (lineage, user)
    }

    /// Holds the processes of reports by pidfd while `body` passes those that still exist to the life cycle. Those that
    /// turn out not to concern it are released again. Throws if no descriptors are left: then nobody knows which exist.
    func withTracked(
        _ reported: [ReportedProcess], _ body: (Set<ProcessID>) throws(MethodError) -> Void
    ) throws(MethodError) {
        var held: Set<ProcessID> = []
        var new: [ProcessID] = []
        defer { letGo(new) }
        for process in reported.compactMap(\.lineage.first) {
            if !processes.isTracked(process) {
                do {
                    try track(process)
                } catch {
                    if error.isExhaustion { throw .exhausted(error) }
                    continue
                }
                new.append(process)
            }
            held.insert(process)
        }
        try body(held)
    }

    /// Releases the processes that turned out not to concern the life cycle.
    private func letGo(_ held: [ProcessID]) {
        for process in held where !core.machine.isRelevant(with: process) { processes.forget(process) }
    }

    /// The same for one process, which must exist.
    func withTracked(
        _ process: ReportedProcess, _ body: () throws(MethodError) -> Void
    ) throws(MethodError) {
        try withTracked([process]) { held throws(MethodError) in
            guard !held.isEmpty else {
                throw MethodError(.noSuchProcess, "No process \(process.lineage.first?.pid ?? 0)")
            }
            try body()
        }
    }

    /// Opened first, then identified: if another process took the number before that, it has another start time.
    func track(_ process: ProcessID) throws(KernelFailure) {
        let descriptor = try PidFD(pid: process.pid)
        guard try proc.identity(of: process.pid) == process.identity, !descriptor.hasExited else {
            throw KernelFailure(operation: "pidfd_open", subject: process.description, errno: ESRCH)
        }
        try processes.track(process, descriptor)
    }
}

extension MethodError {
    /// The daemon has no descriptors or no memory left, which is unrelated to the request.
    static func exhausted(_ failure: KernelFailure) -> MethodError {
        MethodError(.limitsExceeded, "appstated is out of resources: \(failure)")
    }

    /// A process could not be examined: it is gone, unless the daemon is at fault.
    fileprivate static func unreachable(_ failure: KernelFailure, _ gone: String) -> MethodError {
        failure.isExhaustion ? exhausted(failure) : MethodError(.noSuchProcess, gone)
    }
}

extension String {
    /// The part of a client's text that an error message should repeat. Counted in scalars, because one
    /// character can consist of any number of them.
    var shortened: String {
        let beginning = unicodeScalars.prefix(64)
        return beginning.endIndex == unicodeScalars.endIndex ? self : String(beginning) + "…"
    }
}

extension Message {
    /// Reads `h`; the caller owns the descriptor. Throws `LimitsExceeded` if the daemon has no descriptors left.
    borrowing func readOwnedDescriptor() throws -> Int32 {
        do throws(BusFailure) {
            return try readDescriptor()
        } catch {
            let failure = KernelFailure(
                operation: error.operation, subject: error.subject, errno: error.errno)
            if failure.isExhaustion { throw MethodError.exhausted(failure) }
            throw error
        }
    }
}

/// The options of `Register`, each checked: the error names an unknown key, a wrong type or a descriptor.
struct RegisterOptions {
    var delegate: Bool?
    var launchMode: LaunchMode?
    var suspension: SuspensionPolicy?
    var reclaimable = true
    var backgroundModes: [String] = []
    var launchOptions: [(String, Variant)] = []
    var adopted = false

    init(_ entries: [(key: String, value: Variant)], limit: Int) throws(MethodError) {
        var seen: Set<RegisterOption> = []
        for (key, value) in entries {
            guard let option = RegisterOption(rawValue: key) else {
                throw MethodError(.invalidArgs, "Register has no option \"\(key.shortened)\"")
            }
            guard seen.insert(option).inserted else {
                throw MethodError(.invalidArgs, "The option \"\(key)\" is given twice")
            }
            switch option {
            case .delegate: delegate = try value.bool(key)
            case .launchMode: launchMode = try value.choice(key)
            case .suspension: suspension = try value.choice(key)
            case .reclaimable: reclaimable = try value.bool(key)
            case .backgroundModes: backgroundModes = try value.strings(key, limit: limit)
            case .launchOptions: launchOptions = try value.launchOptions(key)
            case .adopted: adopted = try value.bool(key)
            }
        }
    }
}
