import CLinux
import Glibc

/// Opens the descriptors that a process with fewer privileges will use (`HandedOver`).
public enum HandOver {
    /// The machine's namespace, whatever namespace the service manager has put us in: PrivateNetwork= also applies to
    /// ExecStartPre=+.
    private static let machinesNetwork = "/proc/1/ns/net"

    /// Opens every descriptor that can be opened, passes each to `body` with its name, and closes it after that.
    /// Returns the failures: the process with fewer privileges has to do without those descriptors.
    public static func open(_ body: (String, borrowing Descriptor) -> Void) -> [KernelFailure] {
        var failures: [KernelFailure] = []
        func attempt(_ open: () throws(KernelFailure) -> Void) {
            do throws(KernelFailure) {
                try open()
            } catch {
                failures.append(error)
            }
        }
        attempt { () throws(KernelFailure) in
            let namespace = try Descriptor.open(machinesNetwork)
            let result = clinux_enter_network_namespace(namespace.rawValue)
            guard result >= 0 else {
                throw KernelFailure(operation: "setns", subject: machinesNetwork, errno: -result)
            }
            body(HandedOver.network, namespace)
        }
        attempt { () throws(KernelFailure) in body(HandedOver.sockets, try SocketDiagnosis.openSocket()) }
        // Opened before the list of CPUs is read below, so that no CPU can come online unnoticed between the two.
        attempt { () throws(KernelFailure) in body(HandedOver.cpus, try CPUWatch.openSocket()) }
        var sources = [PerfRing.Source(pageFaults: FaultAlarm.never)]
        for name in StopTrace.tracepoints + OOMTrace.tracepoints + LockTrace.tracepoints {
            attempt { () throws(KernelFailure) in
                let tracepoint = try Tracepoint.find([name], root: nil)[0]
                sources.append(PerfRing.Source(tracepoint: tracepoint, filter: nil))
            }
        }
        attempt { () throws(KernelFailure) in
            for cpu in try CPUList.online() {
                for source in sources {
                    body(HandedOver.name(ofEvent: source.name, cpu: cpu), try source.open(cpu))
                }
            }
        }
        return failures
    }
}
