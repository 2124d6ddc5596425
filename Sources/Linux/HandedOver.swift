import CLinux
import Glibc

/// Descriptors that somebody with more rights opened for this process before it was started: perf events, which the
/// kernel gives only to `CAP_PERFMON` (perf_event_open(2)), or where `kernel.perf_event_paranoid` is 3 only to
/// `CAP_SYS_ADMIN`, a socket that asks about the sockets of the machine's network namespace, and one that hears of CPUs
/// that come online. Who has them needs neither.
///
/// Like the environment, this belongs to the process: taken once at its start, before there is a second thread, and
/// looked at after that. What is not there is opened as it is needed, with the process's own rights.
public enum HandedOver {
    nonisolated(unsafe) private static var descriptors: [String: Int32] = [:]

    /// What each name here begins with. Names go through the service manager, `FDNAME=` of sd_notify(3).
    private static let prefix = "kernel-"
    private static let sockets = prefix + "sockets"
    private static let network = prefix + "network"
    private static let cpus = prefix + "cpus"
    /// The machine's, whatever namespace the service manager has put us in: PrivateNetwork= holds for ExecStartPre=+, too.
    private static let machinesNetwork = "/proc/1/ns/net"

    /// Takes those that are meant, for the life of this process, and returns the others.
    public static func take(
        _ given: [(name: String, descriptor: Int32)]
    ) -> [(name: String, descriptor: Int32)] {
        var others: [(name: String, descriptor: Int32)] = []
        for entry in given {
            guard entry.name.hasPrefix(prefix) else {
                others.append(entry)
                continue
            }
            if let older = descriptors.updateValue(entry.descriptor, forKey: entry.name) { close(older) }
        }
        return others
    }

    /// The names of those that were taken.
    public static var names: [String] { descriptors.keys.sorted() }

    /// Gives them to the program that this process is about to run: sd_listen_fds(3). Other descriptors lose their
    /// numbers to them.
    static func passOn() {
        let entries = descriptors.sorted { $0.key < $1.key }
        let first: Int32 = 3
        let copies = entries.map { fcntl($0.value, F_DUPFD_CLOEXEC, first + Int32(entries.count)) }
        guard !copies.isEmpty, !copies.contains(where: { $0 < 0 }) else { return }
        for (index, copy) in copies.enumerated() {
            guard dup2(copy, first + Int32(index)) >= 0 else { return }
        }
        setenv("LISTEN_PID", String(getpid()), 1)
        setenv("LISTEN_FDS", String(copies.count), 1)
        setenv("LISTEN_FDNAMES", entries.map(\.key).joined(separator: ":"), 1)
    }

    /// Opens all that can be, and gives each to `body`, with its name; it is closed after that. What cannot be opened
    /// is returned: its user will do without.
    public static func open(_ body: (String, borrowing Descriptor) -> Void) -> [KernelFailure] {
        var failures: [KernelFailure] = []
        do throws(KernelFailure) {
            let namespace = try Descriptor.open(machinesNetwork)
            let result = clinux_enter_network_namespace(namespace.rawValue)
            guard result >= 0 else {
                throw KernelFailure(operation: "setns", subject: machinesNetwork, errno: -result)
            }
            body(network, namespace)
        } catch {
            failures.append(error)
        }
        do throws(KernelFailure) {
            body(sockets, try SocketDiagnosis.openSocket())
        } catch {
            failures.append(error)
        }
        do throws(KernelFailure) {
            // Before the list of CPUs is read below: none can come between the two.
            body(cpus, try CPUWatch.openSocket())
        } catch {
            failures.append(error)
        }
        var sources = [PerfRing.Source(pageFaults: FaultAlarm.never)]
        for name in StopTrace.tracepoints + OOMTrace.tracepoints + LockTrace.tracepoints {
            do throws(KernelFailure) {
                let tracepoint = try Tracepoint.find([name], root: nil)[0]
                sources.append(PerfRing.Source(tracepoint: tracepoint, filter: nil))
            } catch {
                failures.append(error)
            }
        }
        do throws(KernelFailure) {
            for cpu in try CPUList.online() {
                for source in sources { body(name(source, cpu), try source.openAnew(cpu)) }
            }
        } catch {
            failures.append(error)
        }
        return failures
    }

    /// The perf event that was handed over for this CPU; nil where there is none.
    static func event(_ source: PerfRing.Source, cpu: Int32) throws(KernelFailure) -> Descriptor? {
        try duplicate(name(source, cpu))
    }

    /// The socket of sock_diag(7) that was handed over; nil where there is none.
    static func socket() throws(KernelFailure) -> Descriptor? {
        try duplicate(sockets)
    }

    /// The socket that hears of CPUs, which was handed over; nil where there is none.
    static func uevents() throws(KernelFailure) -> Descriptor? {
        try duplicate(cpus)
    }

    /// The network namespace that `socket()` asks about; nil where none was handed over.
    static func networkNamespace() throws(KernelFailure) -> Descriptor? {
        try duplicate(network)
    }

    /// Its user may close it and want it once more.
    private static func duplicate(_ name: String) throws(KernelFailure) -> Descriptor? {
        guard let number = descriptors[name] else { return nil }
        let copy = fcntl(number, F_DUPFD_CLOEXEC, 3)
        guard copy >= 0 else { throw KernelFailure(operation: "dup", subject: name, errno: errno) }
        return Descriptor(owning: copy)
    }

    /// `kernel-signal.signal_generate-0`: a colon would end an `FDNAME=`.
    private static func name(_ source: PerfRing.Source, _ cpu: Int32) -> String {
        prefix + source.name.map { $0 == ":" ? "." : $0 == " " ? "-" : String($0) }.joined() + "-\(cpu)"
    }
}
