public import AppStateBus
import AppStateContract
import Glibc
public import Linux

/// Moves processes of the user into scopes of their own: systemd.scope(5).
public final class ScopeMaker {
    private let loop: EventLoop
    private let directory: String?
    private var lastNumber: UInt64 = 0
    private var requests: [ObjectIdentifier: ScopeRequest] = [:]

    /// - Parameters:
    ///   - loop: the loop to which each bus is attached.
    ///   - directory: the user's runtime directory, which holds the service manager's socket; nil: there is none.
    public init(loop: EventLoop, directory: String? = Environment["XDG_RUNTIME_DIR"]) {
        self.loop = loop
        self.directory = directory
    }

    /// Moves processes into a new scope. If `main` is in a scope of this application already, and none of the others
    /// is, it attaches the others to that scope.
    ///
    /// - Parameters:
    ///   - id: the application's id, for the name of the scope.
    ///   - others: processes other than `main`. Those that have ended are ignored.
    ///   - bus: the user's bus, on which the service manager is reached; nil: there is none.
    ///   - done: called once, with the name of the scope, or the reason of the failure.
    public func make(
        _ id: String, main: consuming PidFD, others: [Int32], bus: Bus?,
        _ done: @escaping (Result<String, MethodError>) -> Void
    ) {
        let request = ScopeRequest(
            id, main: main, others: others, bus: bus, loop: loop,
            isManagerRunning: ServiceManager.isRunning(in: directory)
        ) { [unowned self] in
            lastNumber += 1
            return lastNumber
        }
        let key = ObjectIdentifier(request)
        requests[key] = request
        request.begin { [weak self] result in
            self?.requests[key] = nil
            done(result)
        }
    }
}

private final class ScopeRequest {
    private let id: String
    private let main: PidFD
    private let others: [Int32]
    private let bus: Bus?
    private let loop: EventLoop
    private let proc = Proc()
    private let isManagerRunning: Bool
    private let nextNumber: () -> UInt64
    /// The wait for the service manager. Nil: there has been none.
    private var arrival: ServiceManager.Arrival?
    private var remainingNames = ServiceManager.attempts
    private var remainingCalls = 4
    private var done: ((Result<String, MethodError>) -> Void)?
    private var call: Slot?
    private var start: Start?

    /// A scope that the service manager is about to start.
    private struct Start {
        let removal: Slot
        let timer: Timer
        /// The object path. Nil: the call is not answered yet.
        var job: String?
    }

    /// How long the service manager may take for each answer, in microseconds.
    private static let patience: UInt64 = 5_000_000
    /// How long it may take to appear on the bus, in microseconds: the daemon waits for 2 s.
    private static let managerPatience: UInt64 = 1_500_000

    init(
        _ id: String, main: consuming PidFD, others: [Int32], bus: Bus?, loop: EventLoop,
        isManagerRunning: Bool, nextNumber: @escaping () -> UInt64
    ) {
        self.id = id
        self.main = main
        self.others = others
        self.bus = bus
        self.loop = loop
        self.isManagerRunning = isManagerRunning
        self.nextNumber = nextNumber
    }

    func begin(_ done: @escaping (Result<String, MethodError>) -> Void) {
        self.done = done
        attempt { try askRoot() }
    }

    private func askRoot() throws {
        let bus = try connection()
        call = try bus.callAsync(
            try ServiceManager.get("ControlGroup", bus), timeout: Self.patience
        ) { [weak self] reply in
            guard let self else { return }
            attempt {
                if let error = reply.error {
                    guard case .noManager = ServiceManager.Failure(error), isManagerRunning, arrival == nil
                    else {
                        throw Self.refusal(error)
                    }
                    return try awaitManager(on: bus)
                }
                guard case .string(let root) = try reply.readVariant() else {
                    throw MethodError.failed("the service manager does not say what its cgroup is")
                }
                try choose(root)
            }
        }
    }

    private func awaitManager(on bus: Bus) throws {
        arrival = try ServiceManager.Arrival(on: bus, loop, within: Self.managerPatience) {
            [weak self] isThere in
            self?.attempt {
                guard isThere else { throw Self.noManager }
                try self?.askRoot()
            }
        }
    }

    /// - Parameter root: the service manager's cgroup.
    private func choose(_ root: String) throws {
        let pid = try mainPID()
        guard let cgroup = try cgroup(of: pid, root) else { throw Self.mainHasEnded }
        let elsewhere = try others.map { try self.cgroup(of: $0, root) }
        let unit = cgroup.split(separator: "/").map(String.init).first { UnitName.isScope($0, of: id) }
        guard let unit, !others.isEmpty,
            !elsewhere.contains(where: { $0.map { Self.isIn(unit, $0) } ?? false })
        else { return try makeScope(of: pid) }
        try attach(to: unit, nil)
    }

    private func makeScope(of pid: Int32) throws {
        let unit = UnitName.scope(id, nextNumber())
        let timer = try loop.timer { [weak self] in
            self?.finish(.failure(.failed("the service manager has not started \(unit) in time")))
        }
        timer.arm(at: loop.now + Self.patience)
        // sd-bus compares no argument after one that is not a string, so the unit cannot be part of the rule.
        let rule =
            "type='signal',sender='\(ServiceManager.name)',path='\(ServiceManager.path)',"
            + "interface='\(ServiceManager.interface)',member='JobRemoved'"
        let bus = try connection()
        let removal = try bus.match(
            rule, failed: { [weak self] in self?.finish(.failure($0)) },
            handler: { [weak self] signal in
                guard let self, (try? signal.readUInt32()) != nil, let job = try? signal.readObjectPath(),
                    job == start?.job, (try? signal.readString()) != nil
                else { return }
                let result = try? signal.readString()
                start = nil
                attempt { try started(unit, result) }
            })
        start = Start(removal: removal, timer: timer)
        let properties: [(String, Variant)] = [
            ("PIDs", .array("u", [.uint32(UInt32(pid))])), ("Slice", .string("app.slice")),
            ("Description", .string(id)), ("CollectMode", .string("inactive-or-failed")),
            // Otherwise processes could not be attached later.
            ("Delegate", .bool(true)),
        ]
        call = try bus.callAsync(try ServiceManager.start(unit, properties, bus), timeout: Self.patience) {
            [weak self] reply in
            guard let self else { return }
            attempt {
                guard let error = reply.error else {
                    start?.job = try reply.readObjectPath()
                    return
                }
                // An earlier agent may have left it.
                guard error.name == ServiceManager.unitExists, remainingNames > 0 else {
                    throw Self.refusal(error)
                }
                remainingNames -= 1
                try makeScope(of: pid)
            }
        }
    }

    private func started(_ unit: String, _ result: String?) throws {
        guard result == "done" else {
            throw MethodError.failed("the service manager has not started \(unit): \(result ?? "no result")")
        }
        try attach(to: unit, nil)
    }

    /// Attaches those of the others that are not in the scope yet. If one of them ends meanwhile, the service manager
    /// refuses them all.
    private func attach(to unit: String, _ error: MethodError?) throws {
        let outside = others.filter { place(of: $0).map { !Self.isIn(unit, $0) } ?? false }
        guard let first = outside.first else { return try conclude(unit) }
        guard remainingCalls > 0 else {
            throw MethodError.failed(
                "process \(first) is not in \(unit): \(error?.message ?? "it was not moved")")
        }
        remainingCalls -= 1
        let bus = try connection()
        let message = try ServiceManager.call("AttachProcessesToUnit", bus)
        try message.append(unit)
        try message.append("")
        try message.append(outside.map(UInt32.init(bitPattern:)))
        call = try bus.callAsync(message, timeout: Self.patience) { [weak self] reply in
            self?.attempt { try self?.attach(to: unit, reply.error) }
        }
    }

    private func conclude(_ unit: String) throws {
        let pid = try mainPID()
        guard let cgroup = place(of: pid), Self.isIn(unit, cgroup) else {
            throw MethodError.failed("process \(pid) is not in \(unit)")
        }
        // If it has ended only now, another process with its id may have been moved.
        _ = try mainPID()
        finish(.success(unit))
    }

    // MARK: Processes

    private func mainPID() throws(MethodError) -> Int32 {
        do throws(KernelFailure) {
            return try main.pid()
        } catch {
            throw Self.mainHasEnded
        }
    }

    /// The cgroup of a process; nil: it has ended.
    private func place(of pid: Int32) -> String? {
        guard let stat = try? proc.stat(pid), !stat.isExiting else { return nil }
        return try? proc.unifiedCgroup(of: pid)
    }

    /// The cgroup of a process that may be moved; nil: it has ended.
    private func cgroup(of pid: Int32, _ root: String) throws(MethodError) -> String? {
        guard let cgroup = place(of: pid), let status = try? proc.status(pid) else { return nil }
        guard status.owner.isWholly(geteuid()) else {
            throw MethodError(ErrorName.accessDenied.rawValue, "process \(pid) belongs to another user")
        }
        guard Self.mayLeave(cgroup, root) else {
            throw MethodError(
                ErrorName.accessDenied.rawValue, "process \(pid) may not be taken out of \(cgroup)")
        }
        return cgroup
    }

    private static func isIn(_ unit: String, _ cgroup: String) -> Bool {
        cgroup.split(separator: "/").contains { $0 == unit }
    }

    /// Whether a process may be taken out of its cgroup: out of a unit of the user's, and out of a login session. Flatpak
    /// and snapd find their processes by their units. The system's service manager would also let the user take it out of
    /// a unit of the system.
    ///
    /// - Parameter root: the cgroup of the user's service manager.
    private static func mayLeave(_ cgroup: String, _ root: String) -> Bool {
        if ApplicationUnit(inPath: cgroup)?.isSandbox == true { return false }
        if cgroup == root || cgroup.hasPrefix(root + "/") { return true }
        return cgroup.split(separator: "/").allSatisfy { name in
            !name.hasSuffix(".service") && !name.hasSuffix(".scope")
                || name.hasPrefix("session-") && name.hasSuffix(".scope")
        }
    }

    private static let mainHasEnded = MethodError(
        ErrorName.noSuchProcess.rawValue, "the main process has ended")

    // MARK: Results

    private func attempt(_ body: () throws -> Void) {
        do {
            try body()
        } catch {
            finish(.failure(error as? MethodError ?? .failed("\(error)")))
        }
    }

    private func connection() throws(MethodError) -> Bus {
        guard let bus else { throw Self.noManager }
        return bus
    }

    private static let noManager = MethodError(
        ErrorName.notSupported.rawValue, "there is no service manager on the bus of the user")

    private static func refusal(_ error: MethodError) -> MethodError {
        switch ServiceManager.Failure(error) {
        case .noManager: noManager
        case .refused(let why): .failed("the service manager refuses the scope: \(why)")
        }
    }

    private func finish(_ result: Result<String, MethodError>) {
        let done = done
        (self.done, start) = (nil, nil)
        done?(result)
    }
}
