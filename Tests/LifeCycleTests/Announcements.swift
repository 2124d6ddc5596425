import AppStateContract

@testable import LifeCycle

/// Shorthands for announcements, by their content.
extension Announcement {
    static func didEnterBackground(serial: UInt64, deadline: Microseconds) -> Announcement {
        Announcement(.didEnterBackground, .until(deadline, of: serial))
    }

    static func willTerminate(serial: UInt64, deadline: Microseconds) -> Announcement {
        Announcement(.willTerminate, .until(deadline, of: serial))
    }

    static func protectedDataWillBecomeUnavailable(serial: UInt64, deadline: Microseconds) -> Announcement {
        Announcement(.protectedDataWillBecomeUnavailable, .until(deadline, of: serial))
    }

    static func backgroundTaskWillExpire(task: UInt64, deadline: Microseconds) -> Announcement {
        Announcement(.backgroundTaskWillExpire, .until(deadline, of: task))
    }

    static func didReceiveMemoryWarning(_ level: MemoryPressure) -> Announcement {
        Announcement(.didReceiveMemoryWarning, .level(level))
    }

    /// The edge that it announces.
    var edge: Edge? {
        if case .edge(let edge, _) = payload { edge } else { nil }
    }

    /// Serial and deadline, if the announcement is this signal.
    func until(_ signal: ApplicationSignal) -> (serial: UInt64, deadline: Microseconds)? {
        if case .until(let deadline, let serial) = payload, self.signal == signal {
            (serial, deadline)
        } else {
            nil
        }
    }
}
