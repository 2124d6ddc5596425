public import AppStateContract

/// What others send to an application: URLs, user activities, messages (§ 3).
extension Machine {
    /// Bytes that wait for one application that cannot read them.
    public static let waitingBytes = 64 << 10

    /// Has the delegate told, now or as soon as it can read: what policy has suspended runs for it.
    mutating func deliver(
        _ number: ApplicationNumber, _ announcement: Announcement, _ why: String
    ) throws(Refusal) {
        let application = try require(number)
        guard application.delegate != nil else { throw .noDelegate(number) }
        if application.isTerminating { throw .noSuchApplication("\(number) any more: it is ending") }
        if !application.takesDeliveries {
            let bytes = announcement.textBytes
            guard application.backlog.textBytes + bytes <= Self.waitingBytes else {
                throw .limitExceeded("bytes that wait for application \(number)", limit: Self.waitingBytes)
            }
            try checkText(bytes, of: application.user)
        }
        if !application.isLaunching { needed(number, why) }
        updateAnnouncing(number, .demand) {
            $0.announce(announcement.signal, with: announcement.payload, &$1)
        }
    }
}

extension Application {
    /// What is sent to it reaches it at once.
    var takesDeliveries: Bool { isReachable && launch == nil }
}

// MARK: Launched by the session agent

extension Machine {
    /// The application that its process's own registration takes over; nil: it begins a new one.
    func launched(takenOverBy registration: Registration) -> Application? {
        guard registration.byItself, let number = numbers[registration.process],
            let application = applications[number], application.awaitsOwnRegistration,
            application.id == registration.id
        else { return nil }
        return application
    }

    /// The process that was launched says how it wants to be treated. It is the same application: who launched it knows
    /// its object. As long as it has not launched, its launch goes on until `FinishLaunching`; where a window of it was
    /// there first, or it was started in the background, it is told of its launch and where it is now.
    mutating func takeOver(
        _ application: Application, _ registration: Registration
    ) throws(Refusal) -> ApplicationNumber {
        let number = application.number
        let modes = registration.backgroundModes.reduce(0) { $0 + $1.utf8.count }
        let freed = application.requestedModes.reduce(0) { $0 + $1.utf8.count }
        try checkText(modes - freed, of: application.user)
        keepText(modes - freed, of: application.user)
        let settings = settings
        update(number, .launch) {
            $0.awaitsOwnRegistration = false
            $0.requestedSuspension = registration.suspension ?? .automatic
            $0.requestedReclaimable = registration.reclaimable
            $0.requestedModes = registration.backgroundModes
            $0.apply(settings)
        }
        guard let delegate = registration.delegate else { return number }
        parts[delegate, default: []].insert(number)
        // A process of it may have become its delegate meanwhile: then it knows where the application is.
        guard application.delegate == nil else {
            try becomeDelegate(number, delegate)
            return number
        }
        updateAnnouncing(number, .launch) {
            $0.delegate = delegate
            if $0.isLaunching {
                var countdown = Countdown(settings.launchTimeout, from: $1.now)
                if $0.isStopped { countdown.pause(at: $1.now) }
                $0.launch = countdown
            }
            $0.meet(settings, &$1)
        }
        return number
    }

    /// What was ended for its memory, and is to be there again.
    mutating func noteReclaimed(_ application: Application) {
        guard application.rule?.relaunchReclaimed == true else { return }
        relaunches.removeAll { $0.id == application.id && $0.user == application.user }
        relaunches.append(
            Relaunch(id: application.id, user: application.user, session: application.session))
        if relaunches.count > Self.mostRelaunches { relaunches.removeFirst() }
    }

    /// Begins when memory is no longer short at all: what is started now must not be ended next.
    mutating func relaunchReclaimed() {
        guard !relaunches.isEmpty, pressure.level == .normal, !pressure.isEventOpen else { return }
        step.effects += relaunches.map(Effect.relaunch)
        relaunches = []
    }

    static let mostRelaunches = 64
}

/// An application that is started again in the background (`RelaunchReclaimed=`).
public struct Relaunch: Equatable, Sendable {
    public let id: ApplicationID
    public let user: UInt32
    public let session: SessionKey
}

extension Application {
    /// Its delegate comes to a launch that others were told of when it began: it is told now, and, where it has launched
    /// already, the way to its present state.
    fileprivate mutating func meet(_ settings: Settings, _ step: inout Step) {
        func tell(_ announcement: Announcement) {
            step.effects.append(.announce(number, announcement, to: .delegate))
        }
        toldState = .notRunning
        guard isReachable else {
            backlog.add(Announcement(.willFinishLaunching))
            backlog.add(Announcement(.didFinishLaunching))
            return
        }
        tell(Announcement(.willFinishLaunching))
        tell(Announcement(.didFinishLaunching))
        for edge in toldState.walk(to: Self.asTold(state)) {
            if let will = edge.will { tell(Announcement(will)) }
            tell(Announcement(.stateChanged, .edge(edge, .launch)))
            toldState = edge.to
            guard edge.to == .background else {
                if let did = edge.did { tell(did) }
                continue
            }
            let serial = nextSerial()
            startGrace(settings, serial: serial, at: step.now)
            tell(Announcement(.didEnterBackground, .until(graceDeadline ?? 0, of: serial)))
        }
    }

    /// A window ends the launch of one that says nothing of itself.
    mutating func windowEndsLaunch() {
        if awaitsOwnRegistration, delegate == nil, launch != nil, !windows.isEmpty { launch = nil }
    }
}
