import AppStateContract

/// An application in the foreground that hangs: its delegate is pinged together with something that it has to handle.
/// Nothing is sent for the ping's own sake.
extension Machine {
    /// The shortest time between two pings of one application.
    static let pingInterval: Microseconds = 10_000_000

    /// Pings the delegate if it was told something in this step.
    ///
    /// - Parameter first: the number of effects before the application was changed.
    mutating func ping(_ next: inout Application, toldSince first: Int) {
        guard next.answersPings else { return }
        guard let span = settings.unresponsive, span > 0, next.isPingable else {
            next.ping?.phase = .paused
            return
        }
        let deadline = step.now.advanced(saturatingBy: span)
        if let ping = next.ping {
            // It has the whole time after a stop, and after its return.
            if ping.phase == .paused { next.ping?.phase = .waiting(until: deadline) }
            return
        }
        guard next.pingedAt.map({ step.now >= $0.advanced(saturatingBy: Self.pingInterval) }) ?? true,
            step.effects[first...].contains(where: { $0.isToDelegate(of: next.number) })
        else { return }
        next.pingedAt = step.now
        let serial = next.nextSerial()
        next.ping = Application.Ping(serial: serial, phase: .waiting(until: deadline))
        step.effects.append(
            .announce(next.number, Announcement(.ping, .until(deadline, of: serial)), to: .delegate))
    }

    mutating func expirePing(of number: ApplicationNumber) {
        guard let deadline = applications[number]?.ping?.deadline, deadline <= step.now else { return }
        update(number, .policy) { $0.ping?.phase = .overdue }
        step.effects.append(.confirmHang(number))
    }

    /// It has not answered, and no debugger holds it up.
    mutating func hangs(_ number: ApplicationNumber) {
        if applications[number]?.ping?.phase == .overdue { missed(.mainLoop, by: number) }
    }
}

extension Application {
    /// A ping that has not been answered.
    struct Ping: Equatable, Sendable {
        enum Phase: Equatable, Sendable {
            case waiting(until: Microseconds)
            /// It was not answered in time.
            case overdue
            /// It need not be answered in time: the application is in the background or stopped.
            case paused
        }

        let serial: UInt64
        var phase: Phase

        var deadline: Microseconds? {
            if case .waiting(let deadline) = phase { deadline } else { nil }
        }
    }

    /// Whether its main loop is expected to run now.
    fileprivate var isPingable: Bool {
        (state == .active || state == .inactive) && isReachable && !isTerminating
    }

    /// Its main loop runs.
    mutating func answeredPing() {
        ping = nil
        if unresponsive == .mainLoop { unresponsive = nil }
    }
}

extension Effect {
    fileprivate func isToDelegate(of number: ApplicationNumber) -> Bool {
        if case .announce(number, _, let audience) = self { audience.contains(.delegate) } else { false }
    }
}
