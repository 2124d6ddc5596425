import AppStateBus
import Linux

/// A transient service of the user's service manager: org.freedesktop.systemd1(5).
///
/// Our connection references the unit (`AddRef`) until it is known how the process ended. Without the reference the
/// unit would be gone before we could ask. The reference ends with our connection.
struct UnitProgram {
    let name: String
    private let bus: Bus
    private static let service = "org.freedesktop.systemd1.Service"

    init(_ name: String, bus: Bus) { (self.name, self.bus) = (name, bus) }

    /// The call that starts it.
    ///
    /// - Parameters:
    ///   - command: the file to run, and its arguments.
    ///   - known: the names of the service manager's variables.
    func startCall(
        _ request: ProgramRequest, _ command: [String], _ known: Set<String>
    ) throws(BusFailure) -> Message {
        // ExecStart would not do: the service manager would expand a dollar sign in an argument.
        let line = Variant.structure([.string(command[0]), .strings(command), .strings(["no-env-expand"])])
        let environment = ProgramEnvironment.ofUnit(request.environment, known: known)
        var values: [(String, Variant)] = [
            ("Description", .string(request.name)), ("Slice", .string("app.slice")),
            ("Type", .string("exec")), ("ExecStartEx", .array("(sasas)", [line])),
            // It ends with the last of its processes: many programs are scripts, or start another process and exit.
            ("ExitType", .string("cgroup")),
            // If the kernel kills one process for lack of memory, such as a browser tab, the rest of the application
            // must keep running.
            ("OOMPolicy", .string("continue")), ("IgnoreSIGPIPE", .bool(false)),
            ("CollectMode", .string("inactive-or-failed")), ("AddRef", .bool(true)),
            ("Environment", .strings(environment.set)),
        ]
        if !environment.unset.isEmpty { values.append(("UnsetEnvironment", .strings(environment.unset))) }
        if let program = request.command.program.split(separator: "/").last {
            values.append(("SyslogIdentifier", .string(String(program))))
        }
        if let entry = request.entry { values.append(("SourcePath", .string(entry))) }
        if let directory = request.command.directory {
            values.append(("WorkingDirectory", .string(directory)))
        }
        return try ServiceManager.start(name, values, bus)
    }

    /// Reports changes of what `ask` asks for. Because of the reference, the service manager announces them.
    func onChange(
        failed: @escaping (MethodError) -> Void, changed: @escaping () -> Void
    ) throws(BusFailure) -> Slot {
        try bus.match(
            "type='signal',sender='\(ServiceManager.name)',path='\(UnitName.objectPath(name))',"
                + "interface='\(ServiceManager.properties)',member='PropertiesChanged',arg0='\(Self.service)'",
            failed: failed, handler: { _ in changed() })
    }

    /// Asks for its process, and how that has ended.
    ///
    /// - Parameter answered: gets its PID, 0 if there is none; and how it has ended, nil if it has not. `unknown`: it was
    ///   not started, or the service manager does not say.
    func ask(
        _ answered: @escaping (_ pid: Int32, _ ending: ExitStatus?) -> Void
    ) throws(BusFailure) -> Slot {
        let message = try ServiceManager.get(nil, of: Self.service, at: UnitName.objectPath(name), bus)
        return try bus.callAsync(message) { reply in
            guard let entries = try? reply.readDictionary() else { return answered(0, .unknown) }
            let values = Dictionary(entries.map { ($0.key, $0.value) }) { $1 }
            guard case .uint32(let pid)? = values["MainPID"],
                case .int32(let status)? = values["ExecMainStatus"]
            else { return answered(0, .unknown) }
            answered(Int32(bitPattern: pid), Self.ending(values, status))
        }
    }

    private static func ending(_ values: [String: Variant], _ status: Int32) -> ExitStatus? {
        switch values["ExecMainCode"] {
        // CLD_EXITED, CLD_KILLED and CLD_DUMPED of waitid(2).
        case .int32(1): .exited(status)
        case .int32(2): .signalled(status, coreDumped: false)
        case .int32(3): .signalled(status, coreDumped: true)
        // The process could not even be forked.
        default: values["Result"] == .string("success") ? nil : .unknown
        }
    }

    /// Lets the unit be collected once nothing runs in it.
    func release() { tell("UnrefUnit") }

    /// Ends everything in the unit, and lets it be collected.
    func stop() {
        tell("StopUnit", "replace")
        release()
    }

    private func tell(_ member: String, _ mode: String? = nil) {
        do throws(BusFailure) {
            let message = try ServiceManager.call(member, bus)
            try message.append(name)
            if let mode { try message.append(mode) }
            try bus.send(message)
        } catch {
            // The connection is lost, and the reference with it.
        }
    }
}
