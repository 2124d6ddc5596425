import CSystemd
import Glibc

/// Information from systemd-logind: sd-login(3). Reads files below /run/systemd and a process's cgroup path,
/// never the bus. Returns `nil` if logind is absent or does not know.
public enum Login {
    /// The session that a process belongs to.
    public static func session(ofProcess pid: Int32) -> String? {
        taken { sd_pid_get_session(pid, &$0) }
    }

    /// The graphical session of a user: sd_uid_get_display(3).
    public static func displaySession(ofUser uid: UInt32) -> String? {
        taken { sd_uid_get_display(uid, &$0) }
    }

    /// The user that a session belongs to.
    public static func owner(ofSession session: String) -> UInt32? {
        var uid: uid_t = 0
        return sd_session_get_uid(session, &uid) >= 0 ? uid : nil
    }

    /// The unit that a process belongs to: a unit of its user's service manager if it has one, else of the system's.
    public static func unit(ofProcess pid: Int32) -> String? {
        taken { sd_pid_get_user_unit(pid, &$0) } ?? taken { sd_pid_get_unit(pid, &$0) }
    }

    private static func taken(_ get: (inout UnsafeMutablePointer<CChar>?) -> Int32) -> String? {
        var string: UnsafeMutablePointer<CChar>?
        guard get(&string) >= 0, let string else { return nil }
        defer { free(string) }
        return String(cString: string)
    }
}
