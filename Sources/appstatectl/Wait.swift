import AppStateBus
import AppStateContract
import ArgumentParser

struct Wait: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Wait until an application is in a state, or has ended.",
        discussion: "timeout(1) limits the time: timeout 10 appstatectl wait --state suspended APP")

    @OptionGroup var bus: BusOptions
    @Option(
        help: ArgumentHelp(
            "Wait for this state, or for any of several. Without it: wait for the application to end.",
            valueName: "state"))
    var state: [LifeCycleState] = []
    @Argument(help: "The application.", completion: .applications) var app: String

    func run() throws {
        let client = try bus.connect()
        let path = try client.path(of: app)
        // A number or a path may be one of no application. From here on, its absence means that it has ended.
        _ = try client.properties(of: path)
        let waiter = try Waiter(client, for: Set(state), at: path, named: app)
        throw ExitCode(try waiter.run())
    }
}

/// Waits until one application is in one of some states.
private final class Waiter {
    private let client: Client
    private let subscription: Subscription
    private let states: Set<LifeCycleState>
    private let path: String
    private let name: String

    /// - Parameter states: empty: the application must end.
    init(_ client: Client, for states: Set<LifeCycleState>, at path: String, named name: String) throws {
        self.client = client
        self.states = states
        self.path = path
        self.name = name
        subscription = try Subscription(client)
    }

    /// - Returns: the exit status.
    func run() throws -> Int32 {
        try subscription.run { [unowned self] _ in
            try look()
        } heard: { [unowned self] message in
            do {
                try hear(message)
                try message.rewind()
            } catch {
                subscription.leave(error)
            }
        }
    }

    /// Looks at the present state: the change may have come before the subscription.
    private func look() throws {
        do {
            let properties = try client.properties(of: path)
            if case .string(let state)? = properties[ApplicationProperty.state.rawValue] { reached(state) }
        } catch let failure as Failure where failure.verdict == .noSuchApplication {
            ended()
        }
    }

    private func hear(_ message: borrowing Message) throws {
        let (interface, member) = (message.interface, message.member)
        if interface == BusNames.application, member == ApplicationSignal.stateChanged.rawValue {
            guard message.path == path else { return }
            _ = try message.readString()
            reached(try message.readString())
            return
        }
        guard interface == BusNames.manager, let member, let signal = ManagerSignal(rawValue: member) else {
            return
        }
        if signal == .resync { return try look() }
        guard signal == .applicationRemoved else { return }
        let removed = try message.readObjectPath()
        _ = try message.readString()
        _ = try message.readUInt32()
        let reason = try message.readString()
        guard removed == path else { return }
        // Its process keeps running.
        guard reason == ExitReason.unregistered.rawValue else { return ended() }
        subscription.leave("\(name) is no longer registered", .noSuchApplication)
    }

    private func reached(_ state: String) {
        if states.contains(where: { $0.rawValue == state }) { subscription.end(0) }
    }

    /// An application that has ended is not running.
    private func ended() {
        if states.isEmpty || states.contains(.notRunning) { return subscription.end(0) }
        subscription.leave("\(name) has ended", .noSuchApplication)
    }
}
