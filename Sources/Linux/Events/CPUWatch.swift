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
    public func consume() -> Bool {
        var hasCome = false
        var byte: UInt8 = 0
        while recv(socket.rawValue, &byte, 1, Int32(MSG_DONTWAIT)) >= 0 || errno == ENOBUFS { hasCome = true }
        return hasCome
    }
}

/// The kernel's lists of CPUs, such as `0-3,8`.
enum CPUList {
    /// The CPUs that are online now.
    static func online() throws(KernelFailure) -> [Int32] {
        let path = "/sys/devices/system/cpu/online"
        let text = try Files.text(in: try Descriptor.open(path), named: path, limit: 1 << 14)
        guard let cpus = parse(text), !cpus.isEmpty else {
            throw KernelFailure(operation: "parse", subject: path, errno: EBADMSG)
        }
        return cpus
    }

    /// Nil for text that is not such a list, or that exceeds 8,192 CPUs, the most that Linux can be built
    /// for.
    static func parse(_ text: String) -> [Int32]? {
        var found: [Int32] = []
        for part in text.split(whereSeparator: { $0 == "," || $0 == "\n" }) {
            let bounds = part.split(separator: "-", omittingEmptySubsequences: false).map { Int32($0) }
            guard let first = bounds.first ?? nil, let last = bounds.last ?? nil, bounds.count <= 2,
                first >= 0, first <= last, last < 8192
            else { return nil }
            found += first...last
        }
        return found
    }
}
