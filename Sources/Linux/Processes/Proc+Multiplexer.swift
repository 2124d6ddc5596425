extension Proc {
    /// The client of a terminal multiplexer (tmux, screen) that shows a caller's terminal within an application.
    ///
    /// The server of a multiplexer does not descend from the terminal emulator that shows it, so the caller's lineage
    /// does not lead there. The server has opened the caller's terminal, has none itself, and runs the same program as
    /// its client. The client is in the foreground of its own terminal.
    ///
    /// - Parameters:
    ///   - main: the application's main process.
    ///   - lineage: the caller, its parent and so on.
    ///   - isForeign: whether a process is another application.
    /// - Returns: the client's process id; nil if there is none.
    public func multiplexerClient(
        within main: ProcessIdentity, showing lineage: [ProcessIdentity],
        isForeign: (ProcessIdentity) -> Bool
    ) -> Int32? {
        guard let server = terminalServer(of: lineage), let program = FileIdentity(path(server, "exe")) else {
            return nil
        }
        return Extent.members(of: main, proc: self, isForeign: isForeign).lazy.map(\.pid).first { pid in
            guard let stat = try? stat(pid), stat.hasPseudoterminal, stat.group == stat.foreground else {
                return false
            }
            return FileIdentity(path(pid, "exe")) == program
        }
    }

    /// The nearest ancestor that has no terminal, if its child has a pseudoterminal.
    private func terminalServer(of lineage: [ProcessIdentity]) -> Int32? {
        var isBelowTerminal = false
        for process in lineage {
            guard let stat = try? stat(process.pid) else { return nil }
            if stat.terminal == 0 { return isBelowTerminal ? process.pid : nil }
            isBelowTerminal = stat.hasPseudoterminal
        }
        return nil
    }
}

extension Proc.Stat {
    /// Its controlling terminal has one of the major numbers of pseudoterminals: 136 to 143 (devices.txt of the
    /// kernel's documentation). Field 7 of proc_pid_stat(5) has the major number in the bits 8 to 19.
    public var hasPseudoterminal: Bool { (136...143).contains(terminal >> 8 & 0xfff) }

    /// The number of its controlling terminal, if that is a pseudoterminal: the minor number, in the other bits.
    public var pseudoterminal: Int32? {
        hasPseudoterminal ? terminal & 0xff | terminal >> 12 & 0xfff00 : nil
    }
}
