import AppStateBus
import AppStateContract
import Daemon
import Glibc
import Linux
import Systemd

/// The daemon's main: reads the arguments, makes its checks, starts, and runs the loop. If a check fails, the
/// daemon exits with one message.
@main
enum Main {
    static func main() {
        switch Arguments(CommandLine.arguments.dropFirst()) {
        case .help:
            print(Arguments.usage)
        case .version:
            print("appstated \(Product.version)")
        case .handOver:
            handOver()
        case .release:
            exit(release())
        case .wrong(let what):
            refuse("\(what); see appstated --help", status: 2)
        case .run(let configuration):
            exit(run(configuration))
        }
    }

    private static func run(_ configuration: Configuration.Source) -> Int32 {
        if case .file(let path) = configuration, access(path, R_OK) != 0 {
            refuse("--config \(path): \(String(cString: strerror(errno)))", status: 1)
        }
        let journal = Journal(identifier: "appstated", minimum: Journal.environmentMinimum)
        // Standard error may be a pipe without a reader.
        signal(SIGPIPE, SIG_IGN)
        // Anybody may send a long message, and the heap is locked into memory.
        Heap.returnLargeBlocks()
        do {
            try ResourceLimit.raiseOpenFiles()
        } catch {
            journal.log(.warning, "\(error)")
        }
        Capability.sysResource.layDown()
        let handed = HandedOver(from: Service.takeStored())
        // The next daemon gets descriptors of its own.
        for name in handed.names { Service.dropStored(name) }
        let loop: EventLoop
        let bus: Bus
        do {
            loop = try EventLoop()
            bus = try Bus.system { journal.log(.error, $0) }
        } catch {
            let address = getenv("DBUS_SYSTEM_BUS_ADDRESS").map {
                " (DBUS_SYSTEM_BUS_ADDRESS=\(String(cString: $0)))"
            }
            refuse("there is no system bus to serve: \(error)\(address ?? "")", status: 1)
        }
        do {
            let directory = runtimeDirectory
            let daemon = try Daemon(
                loop: loop, bus: bus, configuration: configuration,
                runtimeDirectory: directory,
                stateDirectory: getenv("STATE_DIRECTORY").map { String(cString: $0) },
                handed: handed, journal: journal)
            try daemon.start()
            // After the answers to what the start has asked for, because few of the pages that it needed are needed again.
            let settled = try loop.timer { stayInMemory(journal) }
            defer { settled.cancel() }
            settled.arm(at: loop.now + 1_000_000)
            return try daemon.run()
        } catch {
            refuse("cannot serve \(BusNames.service): \(error)", status: 1)
        }
    }

    private static var runtimeDirectory: String? { getenv("RUNTIME_DIRECTORY").map { String(cString: $0) } }

    /// Runs when no other daemon is going to be started.
    private static func release() -> Int32 {
        let journal = Journal(identifier: "appstated", minimum: Journal.environmentMinimum)
        signal(SIGPIPE, SIG_IGN)
        // Every process that is to be continued is held by a pidfd.
        do {
            try ResourceLimit.raiseOpenFiles()
        } catch {
            journal.log(.warning, "\(error)")
        }
        // It may be called by hand, too.
        setenv("RUNTIME_DIRECTORY", "/run/appstated", 0)
        let status = Release.run(runtimeDirectory: runtimeDirectory ?? "", journal: journal)
        Release.refuseCalls()
        return status
    }

    /// The daemon is needed most when memory is short, and must not have to wait for its own pages then (§ 6).
    private static func stayInMemory(_ journal: Journal) {
        do {
            try MemoryLock.lock()
        } catch {
            journal.log(.info, "appstated may be slow when memory is short: \(error)")
        }
    }

    /// Runs as root before the daemon, and stores the descriptors that the daemon may not open itself in the service
    /// manager.
    private static func handOver() {
        guard getenv("NOTIFY_SOCKET") != nil else {
            refuse("there is no service manager to hand anything to: NOTIFY_SOCKET is not set", status: 2)
        }
        let failures = HandOver.open { name, descriptor in
            Service.store(descriptor.rawValue, as: name)
        }
        let journal = Journal(identifier: "appstated", minimum: Journal.environmentMinimum)
        for failure in failures { journal.log(.info, "not handed over: \(failure)") }
    }

    private static func refuse(_ sentence: String, status: Int32) -> Never {
        Journal(identifier: "appstated").log(.error, sentence)
        exit(status)
    }
}
