import AppStateBus
import Linux

/// A process that the user's service manager has started in a transient unit of its own: org.freedesktop.systemd1(5).
///
/// Our connection references the unit (`AddRef`) until it is known how the process ended. Without the reference the
/// unit would be gone before we could ask. The reference ends with our connection, so it does not keep the unit after
/// us.
final class UnitProgram {
    let unit: String
    private let bus: Bus
    private let path: String
    /// The service manager's connection. Messages from other senders are ignored.
    private var manager = ""
    private var match: Slot?
    private var calls: [Slot] = []
    private var ended: ((ExitStatus) -> Void)?
    private var isReleased = false

    private static let service = "org.freedesktop.systemd1.Service"

    private init(_ unit: String, bus: Bus) {
        self.unit = unit
        self.bus = bus
        path = UnitName.objectPath(unit)
    }

    /// Starts a unit.
    ///
    /// - Parameters:
    ///   - request: the program to start.
    ///   - command: the command line of the process: the file and its arguments.
    ///   - number: the first number to try for the name.
    ///   - done: gets the unit, whose process is about to run.
    /// - Returns: the call in progress.
    static func start(
        _ request: ProgramRequest, _ command: (program: String, arguments: [String]), number: UInt64,
        bus: Bus,
        done: @escaping (Result<UnitProgram, ServiceManager.Failure>) -> Void
    ) throws(BusFailure) -> Call {
        let call = Call(request, command, number: number, bus: bus, done: done)
        try call.begin()
        return call
    }

    /// A start in progress. If it is released, the result is not reported.
    final class Call {
        private let request: ProgramRequest
        private let command: (program: String, arguments: [String])
        private var number: UInt64
        private let last: UInt64
        private let bus: Bus
        private var done: ((Result<UnitProgram, ServiceManager.Failure>) -> Void)?
        private var slot: Slot?
        private var program: UnitProgram?
        /// The names of the service manager's own variables.
        private var known: Set<String> = []
        private var lifetime = Lifetime.cgroup

        init(
            _ request: ProgramRequest, _ command: (program: String, arguments: [String]), number: UInt64,
            bus: Bus, done: @escaping (Result<UnitProgram, ServiceManager.Failure>) -> Void
        ) {
            (self.request, self.command, self.number, self.bus) = (request, command, number, bus)
            last = number + ServiceManager.attempts
            self.done = done
        }

        /// Asks for the service manager's variables first.
        func begin() throws(BusFailure) {
            let message = try ServiceManager.get("Environment", bus)
            slot = try bus.callAsync(message) { [weak self] reply in
                guard let self, done != nil else { return }
                if let error = reply.error, case .noManager = ServiceManager.Failure(error) {
                    return finish(.failure(.noManager))
                }
                if case .strings(let variables)? = try? reply.readVariant() {
                    known = Set(variables.map { String($0.prefix { $0 != "=" }) })
                }
                sendAgain()
            }
        }

        private func send() throws(BusFailure) {
            let program = UnitProgram(UnitName.service(request.id, number), bus: bus)
            self.program = program
            let message = try program.startCall(request, command, lifetime, known)
            slot = try bus.callAsync(message) { [weak self] reply in
                self?.answered(reply, program)
            }
        }

        /// Lets the unit be collected if one is started nevertheless: its process ends by itself, because its gate is
        /// closed. The unit is not stopped, because a unit with this name may be one that an earlier agent has left.
        func abandon() {
            done = nil
            program?.release()
        }

        private func answered(_ reply: borrowing Message, _ program: UnitProgram) {
            guard let error = reply.error else {
                program.manager = reply.sender ?? ""
                return finish(.success(program))
            }
            switch error.name {
            case ServiceManager.unitExists where number < last:
                number += 1
                sendAgain()
            case Self.unknownProperty where lifetime == .cgroup:
                lifetime = .mainProcess
                sendAgain()
            default: finish(.failure(ServiceManager.Failure(error)))
            }
        }

        /// The error that a service manager returns if it does not know a property of the unit.
        private static let unknownProperty = "org.freedesktop.DBus.Error.PropertyReadOnly"

        private func sendAgain() {
            do throws(BusFailure) {
                try send()
            } catch {
                finish(.failure(.refused("\(error)")))
            }
        }

        private func finish(_ result: Result<UnitProgram, ServiceManager.Failure>) {
            let done = done
            self.done = nil
            done?(result)
        }
    }

    /// When the unit ends.
    private enum Lifetime {
        /// With the last of its processes. Many programs are scripts, or start another process and exit.
        case cgroup
        /// With its first process, as all units did before systemd 250. Processes that it leaves behind keep running.
        case mainProcess

        var property: (String, Variant) {
            switch self {
            case .cgroup: ("ExitType", .string("cgroup"))
            case .mainProcess: ("KillMode", .string("process"))
            }
        }
    }

    private func startCall(
        _ request: ProgramRequest, _ command: (program: String, arguments: [String]), _ lifetime: Lifetime,
        _ known: Set<String>
    ) throws(BusFailure) -> Message {
        // ExecStart would not do: the service manager would expand a dollar sign in an argument.
        let line = Variant.structure([
            .string(command.program), .strings([command.program] + command.arguments),
            .strings(["no-env-expand"]),
        ])
        let values =
            Self.values(request, known) + [lifetime.property, ("ExecStartEx", .array("(sasas)", [line]))]
        return try ServiceManager.start(unit, values, bus)
    }

    private static func values(_ request: ProgramRequest, _ known: Set<String>) -> [(String, Variant)] {
        let environment = ProgramEnvironment.ofUnit(request.environment, known: known)
        var values: [(String, Variant)] = [
            ("Description", .string(request.name)), ("Slice", .string("app.slice")),
            ("Type", .string("exec")),
            // If the kernel kills one process for lack of memory, such as a browser tab, the rest of the application
            // must keep running.
            ("OOMPolicy", .string("continue")), ("IgnoreSIGPIPE", .bool(false)),
            ("CollectMode", .string("inactive-or-failed")), ("AddRef", .bool(true)),
            ("Environment", .strings(environment.set)),
        ]
        if !environment.unset.isEmpty { values.append(("UnsetEnvironment", .strings(environment.unset))) }
        if let name = request.invocation.program.split(separator: "/").last {
            values.append(("SyslogIdentifier", .string(String(name))))
        }
        if let entry = request.entry { values.append(("SourcePath", .string(entry))) }
        if let directory = request.invocation.directory {
            values.append(("WorkingDirectory", .string(directory)))
        }
        return values
    }

    // MARK: Its process

    /// Asks for the PID of the process.
    func askProcess(_ answered: @escaping (_ pid: Int32?) -> Void) {
        do throws(BusFailure) {
            let message = try ServiceManager.get("MainPID", of: Self.service, at: path, bus)
            calls.append(
                try bus.callAsync(message) { reply in
                    guard case .uint32(let pid)? = try? reply.readVariant(), pid > 0 else {
                        return answered(nil)
                    }
                    answered(Int32(bitPattern: pid))
                })
        } catch {
            answered(nil)
        }
    }

    /// Watches how the process ends.
    ///
    /// - Parameter ended: called once. `unknown`: the process was not started, or the service manager does not report
    ///   the status.
    func watch(_ ended: @escaping (ExitStatus) -> Void) throws(BusFailure) {
        self.ended = ended
        let rule =
            "type='signal',sender='\(ServiceManager.name)',path='\(path)',"
            + "interface='\(ServiceManager.properties)',"
            + "member='PropertiesChanged',arg0='\(Self.service)'"
        match = try bus.match(
            rule,
            // If the bus refuses the match, `ask` remains.
            failed: { _ in },
            handler: { [weak self] message in
                guard let self, message.sender == manager, (try? message.readString()) != nil else { return }
                look(at: message)
            })
        ask()
    }

    /// Asks how the process ended. If it has ended, the answer goes to the handler of `watch`.
    func ask() {
        guard ended != nil else { return }
        do throws(BusFailure) {
            let message = try ServiceManager.get(nil, of: Self.service, at: path, bus)
            calls.append(
                try bus.callAsync(message) { [weak self] reply in
                    if reply.isError { self?.finish(.unknown) } else { self?.look(at: reply) }
                })
        } catch {
            finish(.unknown)
        }
    }

    private func look(at message: borrowing Message) {
        guard let entries = try? message.readDictionary() else { return }
        let values = Dictionary(entries.map { ($0.key, $0.value) }) { $1 }
        guard case .int32(let status)? = values["ExecMainStatus"] else { return }
        switch values["ExecMainCode"] {
        // CLD_EXITED, CLD_KILLED and CLD_DUMPED of waitid(2).
        case .int32(1): finish(.exited(status))
        case .int32(2): finish(.signalled(status, coreDumped: false))
        case .int32(3): finish(.signalled(status, coreDumped: true))
        default:
            // The process could not even be forked.
            if case .string(let result)? = values["Result"], result != "success" { finish(.unknown) }
        }
    }

    private func finish(_ status: ExitStatus) {
        guard let ended else { return }
        self.ended = nil
        match = nil
        release()
        ended(status)
    }

    /// Lets the unit be collected once nothing runs in it.
    func release() {
        guard !isReleased else { return }
        isReleased = true
        tell("UnrefUnit")
    }

    /// Ends everything in the unit, and lets the unit be collected.
    func stop() {
        tell("StopUnit", "replace")
        release()
    }

    private func tell(_ member: String, _ mode: String? = nil) {
        do throws(BusFailure) {
            let message = try ServiceManager.call(member, bus)
            try message.append(unit)
            if let mode { try message.append(mode) }
            try bus.send(message)
        } catch {
            // The connection is lost, and the reference with it.
        }
    }
}
