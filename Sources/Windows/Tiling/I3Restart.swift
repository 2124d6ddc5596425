import Linux

/// Follows i3 while it restarts in place (i3 User's Guide, "Reloading/Restarting/Exiting"): i3 then executes itself. It
/// closes its socket, but keeps its process, and the windows of its clients. When it listens again, it announces its
/// socket by a property of the root window.
final class I3Restart {
    let processes: X11Processes
    private let manager: PidFD
    private let polled: PollSet
    /// i3 may listen: it has announced its socket since the last attempt to connect.
    private var isAnnounced = false

    /// - Parameters:
    ///   - process: i3's.
    ///   - processes: the X server that i3 manages.
    /// - Throws: if the process is gone, for example.
    init(of process: Int32, _ processes: X11Processes) throws(KernelFailure) {
        self.processes = processes
        manager = try PidFD(pid: process)
        polled = try PollSet()
        try polled.add(manager.rawValue)
        try polled.add(processes.descriptor)
        processes.watchI3()
    }

    /// Readable when something has happened to i3, to its socket or on a connection.
    var descriptor: Int32 { polled.descriptor }
    /// i3, or the X server, has ended.
    var hasEnded: Bool { manager.hasExited || !processes.isAlive }

    /// Polls a connection as well, until it is closed.
    func follow(_ connection: IPCConnection) throws(ObserverFailure) {
        do throws(KernelFailure) {
            try polled.add(connection.descriptor)
        } catch {
            throw .unreachable("\(error)")
        }
    }

    /// The connection has ended, perhaps this one only: one attempt is made at once.
    func expect() { isAnnounced = true }

    /// Reads what has happened.
    func dispatch() {
        if processes.hasI3Announced() { isAnnounced = true }
    }

    /// A connection to i3 that listens again; nil: it does not, as far as is known.
    func connect() -> IPCConnection? {
        guard isAnnounced, let path = processes.i3Socket() else { return nil }
        isAnnounced = false
        return try? IPCConnection(path: path)
    }
}
