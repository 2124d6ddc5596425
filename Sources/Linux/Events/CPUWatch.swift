import CLinux
import Glibc

/// Reports that a CPU has come online, from the kernel's own message (drivers/base/core.c, `device_online`). Perf
/// events that were opened earlier do not cover that CPU.
///
/// The socket receives nothing else: a filter in the kernel compares the beginning of each message. Returning from
/// system sleep sends no such message; logind reports that.
public final class CPUWatch {
    private let socket: Descriptor

    /// Watches from now on, with the socket that was handed over, else with one of its own.
    public init(handed: HandedOver = HandedOver()) throws(KernelFailure) {
        if let its = try handed.uevents() {
            socket = its
        } else {
            socket = try Self.openSocket()
        }
    }

    static func openSocket() throws(KernelFailure) -> Descriptor {
        let type = Int32(SOCK_RAW.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
        let number = Glibc.socket(AF_NETLINK, type, NETLINK_KOBJECT_UEVENT)
        guard number >= 0 else {
            throw KernelFailure(operation: "socket", subject: "NETLINK_KOBJECT_UEVENT", errno: errno)
        }
        let socket = Descriptor(owning: number)
        let result = clinux_hear_of_cpus(number, SOL_SOCKET, SO_ATTACH_FILTER, UInt16(AF_NETLINK))
        guard result >= 0 else {
            throw KernelFailure(operation: "bind", subject: "NETLINK_KOBJECT_UEVENT", errno: -result)
        }
        return socket
    }

    /// To be polled for readability.
    public var descriptor: Int32 { socket.rawValue }

    /// Whether a CPU has, or may have, come online since the last call.
    public func take() -> Bool {
        var hasCome = false
        var byte: UInt8 = 0
        // Bounded, though only the kernel can send anything to it.
        for _ in 0..<256 {
            let count = recv(socket.rawValue, &byte, 1, Int32(MSG_DONTWAIT) | Int32(MSG_TRUNC))
            if count >= 0 || errno == ENOBUFS {
                hasCome = true
            } else if errno != EINTR {
                break
            }
        }
        return hasCome
    }

    /// The CPUs that are online now; nil if they cannot be read.
    public static var online: [Int32]? { try? CPUList.online() }
}
