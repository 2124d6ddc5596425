import Glibc

/// Descriptors that somebody with more rights opened for this process before it was started: perf events, which the
/// kernel gives only to `CAP_PERFMON` (perf_event_open(2)), or where `kernel.perf_event_paranoid` is 3 only to
/// `CAP_SYS_ADMIN`, a socket that asks about the sockets of the machine's network namespace, and one that hears of CPUs
/// that come online. Who has them needs neither. What is not there is opened as it is needed, with the process's own
/// rights.
///
/// They stay open for the life of the process. `HandOver` makes them.
public struct HandedOver: Sendable {
    private var descriptors: [String: Int32] = [:]

    /// What each name here begins with. Names go through the service manager, `FDNAME=` of sd_notify(3).
    private static let prefix = "kernel-"
    static let sockets = prefix + "sockets"
    static let network = prefix + "network"
    static let cpus = prefix + "cpus"

    /// None.
    public init() {}

    /// Takes those that are meant, and leaves the others.
    public init(from given: inout [(name: String, descriptor: Int32)]) {
        for entry in given where entry.name.hasPrefix(Self.prefix) {
            if let older = descriptors.updateValue(entry.descriptor, forKey: entry.name) { close(older) }
        }
        given.removeAll { $0.name.hasPrefix(Self.prefix) }
    }

    /// The names of those that were taken.
    public var names: [String] { descriptors.keys.sorted() }

    /// Gives them to the program that this process is about to run: sd_listen_fds(3). Other descriptors lose their
    /// numbers to them.
    func passOn() {
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

    /// The perf event for this CPU.
    func event(_ source: String, cpu: Int32) throws(KernelFailure) -> Descriptor? {
        try duplicate(Self.name(ofEvent: source, cpu: cpu))
    }

    /// The socket of sock_diag(7).
    func socket() throws(KernelFailure) -> Descriptor? { try duplicate(Self.sockets) }

    /// The socket that hears of CPUs.
    func uevents() throws(KernelFailure) -> Descriptor? { try duplicate(Self.cpus) }

    /// The network namespace that `socket()` asks about.
    func networkNamespace() throws(KernelFailure) -> Descriptor? { try duplicate(Self.network) }

    /// Its user may close it and want it once more.
    private func duplicate(_ name: String) throws(KernelFailure) -> Descriptor? {
        guard let number = descriptors[name] else { return nil }
        let copy = fcntl(number, F_DUPFD_CLOEXEC, 3)
        guard copy >= 0 else { throw KernelFailure(operation: "dup", subject: name, errno: errno) }
        return Descriptor(owning: copy)
    }

    /// `kernel-signal.signal_generate-0`: a colon would end an `FDNAME=`.
    static func name(ofEvent source: String, cpu: Int32) -> String {
        prefix + source.map { $0 == ":" ? "." : $0 == " " ? "-" : String($0) }.joined() + "-\(cpu)"
    }
}
