public import AppStateBus
import AppStateContract
import Glibc
public import Linux

/// Moves processes of the user into a scope of their own: systemd.scope(5). It retains itself until it is answered.
public final class ScopeMaker {
    private let id: String
    private let main: PidFD
    private let others: [Int32]
    private let bus: Bus
    private let loop: EventLoop
    private let manager: ServiceManager
    private let proc = Proc()
    private var remainingCalls = 4
    private var done: ((Result<String, MethodError>) -> Void)?
    private var timer: Timer?
    private var removal: Slot?

    /// How long the service manager may take in all, in microseconds.
    private static let patience: UInt64 = 5_000_000

    /// Moves processes into a new scope. If `main` is in a scope of this application already, and none of the others
    /// is, it attaches the others to that scope.
    ///
    /// - Parameters:
    ///   - id: the application's id, for the name of the scope.
    ///   - others: processes other than `main`. Those that have ended are ignored.
    ///   - bus: the user's bus, attached to the loop, on which the service manager is reached.
    ///   - directory: the user's runtime directory, which holds the service manager's socket; nil: there is none.
    ///   - done: called once, with the name of the scope, or the reason of the failure.
    public static func make(
        _ id: String, main: consuming PidFD, others: [Int32], bus: Bus, loop: EventLoop,
        directory: String? = Environment["XDG_RUNTIME_DIR"],
        _ done: @escaping (Result<String, MethodError>) -> Void
    ) {
        ScopeMaker(id, main: main, others: others, bus: bus, loop: loop, done)
            .begin(isManagerRunning: ServiceManager.isRunning(in: directory))
    }

    private init(
        _ id: String, main: consuming PidFD, others: [Int32], bus: Bus, loop: EventLoop,
        _ done: @escaping (Result<String, MethodError>) -> Void
    ) {
        (self.id, self.others, self.bus, self.loop, self.done) = (id, others, bus, loop, done)
        self.main = main
        manager = ServiceManager(bus, loop)
    }

    private func begin(isManagerRunning: Bool) {
        attempt {
            timer = try loop.timer { [self] in
                finish(.failure(.failed("the service manager has not made the scope in time")))
            }
            timer?.arm(at: loop.now + Self.patience)
            try manager.get("ControlGroup", isRunning: isManagerRunning) { [self] result in
                attempt {
                    guard case .string(let root) = try result.get() else { throw ServiceManager.absence }
                    try choose(root)
                }
            }
        }
    }

    /// - Parameter root: the service manager's cgroup.
    private func choose(_ root: String) throws {
        let pid = try mainPID()
        let places = try ([pid] + others).map { try cgroup(of: $0, root) }
        guard let cgroup = places[0] else { throw Self.mainHasEnded }
        let unit = cgroup.split(separator: "/").map(String.init).first { UnitName.isScope($0, of: id) }
        if let unit, !others.isEmpty, !places.dropFirst().contains(where: { Self.isIn(unit, $0) }) {
            try attach(to: unit, nil)
        } else {
            try makeScope(of: pid)
        }
    }

    private func makeScope(of pid: Int32) throws {
        let unit = UnitName.scope(id)
        // sd-bus compares no argument after one that is not a string, so the unit cannot be part of the rule.
        removal = try bus.match(
            "type='signal',sender='\(ServiceManager.name)',path='\(ServiceManager.path)',"
                + "interface='\(ServiceManager.manager)',member='JobRemoved'",
            failed: { [self] in finish(.failure($0)) },
            handler: { [self] signal in
                guard (try? signal.readUInt32()) != nil, (try? signal.readObjectPath()) != nil,
                    (try? signal.readString()) == unit, let result = try? signal.readString()
                else { return }
                removal = nil
                attempt {
                    guard result == "done" else {
                        throw MethodError.failed("the service manager has not started \(unit): \(result)")
                    }
                    try attach(to: unit, nil)
                }
            })
        let properties: [(String, Variant)] = [
            ("PIDs", .array("u", [.uint32(UInt32(pid))])), ("Slice", .string("app.slice")),
            ("Description", .string(id)), ("CollectMode", .string("inactive-or-failed")),
            // Otherwise processes could not be attached later.
            ("Delegate", .bool(true)),
        ]
        try manager.start(unit, properties) { [self] error in
            guard let error else { return }
            finish(.failure(.failed("the service manager refuses the scope: \(error)")))
        }
    }

    /// Attaches those of the others that are not in the scope yet. If one of them ends meanwhile, the service manager
    /// refuses them all.
    private func attach(to unit: String, _ error: MethodError?) throws {
        let outside = others.filter { place(of: $0).map { !Self.isIn(unit, $0) } ?? false }
        guard !outside.isEmpty else {
            // If it has ended only now, another process with its id may have been moved.
            guard Self.isIn(unit, place(of: try mainPID())) else { throw Self.mainHasEnded }
            return finish(.success(unit))
        }
        guard remainingCalls > 0 else {
            throw MethodError.failed(
                "process \(outside[0]) is not in \(unit): \(error?.message ?? "it was not moved")")
        }
        remainingCalls -= 1
        try manager.send("AttachProcessesToUnit") { [self] error in
            attempt { try attach(to: unit, error) }
        } _: { message throws(BusFailure) in
            try message.append(unit)
            try message.append("")
            try message.append(outside.map(UInt32.init(bitPattern:)))
        }
    }

    // MARK: Processes

    private func mainPID() throws(MethodError) -> Int32 {
        guard let pid = try? main.pid() else { throw Self.mainHasEnded }
        return pid
    }

    /// The cgroup of a process; nil: it has ended.
    private func place(of pid: Int32) -> String? {
        guard let stat = try? proc.stat(pid), !stat.isExiting else { return nil }
        return try? proc.unifiedCgroup(of: pid)
    }

    /// The cgroup of a process that may be moved; nil: it has ended.
    private func cgroup(of pid: Int32, _ root: String) throws(MethodError) -> String? {
        guard let cgroup = place(of: pid), let status = try? proc.status(pid) else { return nil }
        guard status.owner.isWholly(geteuid()), Self.mayLeave(cgroup, root) else {
            throw MethodError(
                ErrorName.accessDenied.rawValue,
                "process \(pid) may not be taken out of \(cgroup), or belongs to another user")
        }
        return cgroup
    }

    private static func isIn(_ unit: String, _ cgroup: String?) -> Bool {
        cgroup?.split(separator: "/").contains { $0 == unit } ?? false
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

    private func attempt(_ body: () throws -> Void) {
        do { try body() } catch { finish(.failure(error as? MethodError ?? .failed("\(error)"))) }
    }

    private func finish(_ result: Result<String, MethodError>) {
        let done = done
        (self.done, timer, removal) = (nil, nil, nil)
        done?(result)
    }
}
