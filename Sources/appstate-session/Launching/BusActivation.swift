import AppStateBus
import Linux

/// The start of an application by the session bus.
final class BusActivation {
    /// The result of the start.
    enum Outcome {
        case started(Running)
        /// The bus has nothing to start for the name, or there is no bus.
        case notActivatable(String)
        case failed(String)
    }

    /// The process that owns the name.
    final class Running {
        let process: PidFD
        let pid: Int32

        init(_ process: consuming PidFD, _ pid: Int32) {
            self.process = process
            self.pid = pid
        }
    }

    private let id: String
    private let request: LaunchRequest
    private let token: String?
    private let bus: Bus
    private let application: RunningApplication
    private let proc = Proc()
    private var slots: [Slot] = []
    private let done: (Outcome) -> Void
    private let complain: (String) -> Void

    /// The errors of a bus that has nothing to start for a name.
    private static let absences: Set<String> = [
        "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner",
    ]

    /// - Parameters:
    ///   - token: the token for the application's window; nil: there is none.
    ///   - complain: gets the error if the application answers the request to show itself with one.
    ///   - done: called once.
    init(
        _ id: String, _ request: LaunchRequest, token: String?, on bus: Bus,
        complain: @escaping (String) -> Void, done: @escaping (Outcome) -> Void
    ) throws(BusFailure) {
        self.id = id
        self.request = request
        self.token = token
        self.bus = bus
        self.complain = complain
        self.done = done
        application = RunningApplication(id, on: bus)
        slots = [try application.start { [unowned self] error in started(error) }]
    }

    private func started(_ error: MethodError?) {
        if let error {
            let isAbsent = Self.absences.contains(error.name)
            return done(isAbsent ? .notActivatable("\(error)") : .failed("\(error)"))
        }
        do throws(BusFailure) {
            slots.append(try bus.askHeldProcess(of: id) { [unowned self] process in take(process) })
        } catch {
            done(.failed("\(error)"))
        }
    }

    private func take(_ process: (pid: Int32, descriptor: Int32?)?) {
        guard let process else { return done(.failed("it has ended, or the bus does not know its process")) }
        do throws(KernelFailure) {
            let running = Running(try Self.hold(process.pid, process.descriptor), process.pid)
            guard let unit = proc.flatpakUnit(ofProxy: process.pid) else { return show(running) }
            guard let main = try mainProcess(ofFlatpak: unit) else {
                return done(.notActivatable("no process is found behind the proxy of \(unit)"))
            }
            show(main)
        } catch {
            done(.failed("\(error)"))
        }
    }

    /// The process is known by now. The application has not been asked for anything before.
    private func show(_ running: Running) {
        do throws(BusFailure) {
            if !request.isBackground || !request.urls.isEmpty {
                slots.append(
                    try application.present(request.urls, token: token) { [complain, id] error in
                        if let error { complain("\(id) does not show itself: \(error)") }
                    })
            }
            done(.started(running))
        } catch {
            done(.failed("\(error)"))
        }
    }

    /// From the bus's point of view, a Flatpak's proxy owns the name.
    private func mainProcess(ofFlatpak unit: String) throws(KernelFailure) -> Running? {
        guard let main = proc.mainProcess(ofFlatpak: unit) else { return nil }
        let process = try PidFD(pid: main.pid)
        guard (try? proc.identity(of: main.pid)) == main else { return nil }
        return Running(process, main.pid)
    }

    /// Without a descriptor from the bus the PID is opened: a moment ago the process was on the bus and owned its name.
    private static func hold(_ pid: Int32, _ descriptor: Int32?) throws(KernelFailure) -> PidFD {
        guard let descriptor else { return try PidFD(pid: pid) }
        return try PidFD(adopting: Descriptor(owning: descriptor))
    }
}
