import Glibc

/// Descriptors that a process with more privileges opened for this process before it was started: perf
/// events, which the kernel gives only to `CAP_PERFMON` (perf_event_open(2)), or only to `CAP_SYS_ADMIN`
/// where `kernel.perf_event_paranoid` is 3; a socket for queries about the sockets of the machine's network
/// namespace; and a socket that is notified of CPUs that come online. A process that has them needs none of these
/// capabilities. A descriptor that was not handed over is opened when it is needed, with the process's own privileges.
///
/// They stay open for the life of the process. `HandOver` opens them.
public struct HandedOver: Sendable {
    private var descriptors: [String: Int32] = [:]

    /// The prefix of every name here. Names go through the service manager, `FDNAME=` of sd_notify(3).
    private static let prefix = "kernel-"
    static let sockets = prefix + "sockets"
    static let network = prefix + "network"
    static let cpus = prefix + "cpus"

    /// No descriptors.
    public init() {}

    /// Takes the descriptors.
    public init(from given: [(name: String, descriptor: Int32)]) {
        for entry in given {
            if let older = descriptors.updateValue(entry.descriptor, forKey: entry.name) { close(older) }
        }
    }

    /// The names of the descriptors that were taken.
    public var names: [String] { descriptors.keys.sorted() }

    /// The perf event for this CPU.
    func event(_ source: String, cpu: Int32) throws(KernelFailure) -> Descriptor? {
        try duplicate(Self.name(ofEvent: source, cpu: cpu))
    }

    /// The socket of sock_diag(7).
    func socket() throws(KernelFailure) -> Descriptor? { try duplicate(Self.sockets) }

    /// The socket that is notified of CPUs.
    func uevents() throws(KernelFailure) -> Descriptor? { try duplicate(Self.cpus) }

    /// The network namespace to which `socket()` refers.
    func networkNamespace() throws(KernelFailure) -> Descriptor? { try duplicate(Self.network) }

    /// A copy, because the caller may close it and ask for it again.
    private func duplicate(_ name: String) throws(KernelFailure) -> Descriptor? {
        guard let number = descriptors[name] else { return nil }
        let copy = fcntl(number, F_DUPFD_CLOEXEC, 3)
        guard copy >= 0 else { throw KernelFailure(operation: "dup", subject: name, errno: errno) }
        return Descriptor(owning: copy)
    }

    /// For example `kernel-signal.signal_generate-0`: a colon would end an `FDNAME=`.
    static func name(ofEvent source: String, cpu: Int32) -> String {
        prefix + source.map { $0 == ":" ? "." : $0 == " " ? "-" : String($0) }.joined() + "-\(cpu)"
    }
}
