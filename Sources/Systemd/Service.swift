import CSystemd
import Glibc

/// How a service and the service manager notify each other: sd-daemon(3).
public enum Service {
    /// Notifies the service manager. If none listens (NOTIFY_SOCKET), does nothing.
    ///
    /// - Parameter state: assignments, one on each line, as in sd_notify(3): `READY=1`, `STOPPING=1`, `STATUS=…`.
    /// - Returns: why the service manager could not be notified, as an errno; 0: it was notified, or there is none.
    @discardableResult
    public static func notify(_ state: String) -> Int32 {
        max(0, -sd_notify(0, state))
    }

    /// Whether there is a service manager that restarts us when we fail: sd_notify(3), NOTIFY_SOCKET.
    public static var isSupervised: Bool { getenv("NOTIFY_SOCKET") != nil }

    /// The message that a reload began, for Type=notify-reload; `READY=1` ends it.
    ///
    /// - Parameter now: CLOCK_MONOTONIC, in microseconds.
    public static func reloading(at now: UInt64) -> String {
        "RELOADING=1\nMONOTONIC_USEC=\(now)"
    }

    /// Asks the service manager to keep a descriptor for our next instance: FDSTORE=1 of sd_notify(3). It keeps at most
    /// `FileDescriptorStoreMax=` of them.
    ///
    /// - Returns: whether it was asked; false without a service manager.
    @discardableResult
    public static func store(_ descriptor: Int32, as name: String) -> Bool {
        var descriptors = [descriptor]
        return sd_pid_notify_with_fds(0, 0, "FDSTORE=1\nFDPOLL=0\nFDNAME=\(name)", &descriptors, 1) > 0
    }

    /// Asks the service manager to close the descriptors that it kept under this name.
    public static func dropStored(_ name: String) {
        notify("FDSTOREREMOVE=1\nFDNAME=\(name)")
    }

    /// The descriptors that the service manager kept, by name; the caller owns them. Must be called only
    /// once: sd_listen_fds_with_names(3).
    public static func takeStored() -> [(name: String, descriptor: Int32)] {
        var names: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?
        let count = sd_listen_fds_with_names(1, &names)
        guard count > 0, let names else { return [] }
        defer { free(names) }
        return (0..<Int(count)).map { index in
            let name = names[index].map { String(cString: $0) } ?? ""
            free(names[index])
            return (name, SD_LISTEN_FDS_START + Int32(index))
        }
    }
}
