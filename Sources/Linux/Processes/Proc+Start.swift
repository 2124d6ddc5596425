/// What a program was started with. The kernel reads it from the process's own memory, which may take a while.
extension Proc {
    /// The command line of a process, as it may be shown: its words, at most 80 bytes; its name if it has none.
    public func commandLine(of pid: Int32) -> String {
        let line = (try? TextFile.read(path(pid, "cmdline"))) ?? ""
        let words = line.split(separator: "\0").joined(separator: " ")
        if words.isEmpty { return (try? stat(pid))?.comm ?? "" }
        return words.utf8.count <= 80 ? words : String(decoding: words.utf8.prefix(77), as: UTF8.self) + "..."
    }

    /// The process that must keep telling a service manager that it is alive, as `WatchdogSec=` says, according to the
    /// environment of a process: itself, or one above it (sd_watchdog_enabled(3)); nil: there is none.
    public func watchdogProcess(of pid: Int32) -> Int32? {
        let environment = environment(of: pid)
        guard let span = environment["WATCHDOG_USEC"].flatMap({ UInt64($0) }), span > 0 else { return nil }
        return environment["WATCHDOG_PID"].map { Int32($0) } ?? pid
    }

    /// Empty if it cannot be read.
    private func environment(of pid: Int32) -> [String: String] {
        let text = (try? TextFile.read(path(pid, "environ"))) ?? ""
        let pairs = text.split(separator: "\0").compactMap { line in
            line.utf8.firstIndex(of: UInt8(ascii: "=")).map {
                (String(line[..<$0]), String(line[line.utf8.index(after: $0)...]))
            }
        }
        return Dictionary(pairs) { first, _ in first }
    }
}
