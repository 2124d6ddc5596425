/// org.freedesktop.login1 on the system bus.
enum Logind {
    static let name = "org.freedesktop.login1"
    static let path = "/org/freedesktop/login1"
    static let manager = "org.freedesktop.login1.Manager"
    static let session = "org.freedesktop.login1.Session"
    static let sessions = "/org/freedesktop/login1/session"
    /// logind's error about a session that no longer exists.
    static let noSuchSession = "org.freedesktop.login1.NoSuchSession"

    /// The match rule for the manager's signals of this kind (org.freedesktop.login1(5)).
    static func rule(_ member: String) -> String {
        "path='\(path)',interface='\(manager)',member='\(member)'"
    }
}
