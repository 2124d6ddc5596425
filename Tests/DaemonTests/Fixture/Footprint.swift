import AppStateBus
import Foundation
import Glibc
import TestSupport

/// The resources that the daemon's process uses, as /proc shows them: proc(5).
extension TestDaemon {
    /// What its descriptors refer to, sorted: the same list means that nothing was opened and left open.
    func descriptors() throws -> [String] {
        let directory = "/proc/\(process.pid)/fd"
        return try FileManager.default.contentsOfDirectory(atPath: directory)
            .compactMap { try? FileManager.default.destinationOfSymbolicLink(atPath: "\(directory)/\($0)") }
            // Each socket has a new number.
            .map { $0.hasPrefix("socket:") ? "socket" : $0 }
            .sorted()
    }

    /// How often its threads have gone to sleep voluntarily so far: once for each time that they were woken.
    func wakeUps() throws -> Int {
        let threads = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(process.pid)/task")
        return try threads.reduce(0) { try $0 + statusNumber("voluntary_ctxt_switches", "task/\($1)/") }
    }

    /// Its own memory, in KiB, without what is mapped from files.
    func anonymousMemory() throws -> Int { try statusNumber("RssAnon") }

    /// Whether a timer of its loop is armed (proc(5), "timerfd"). The timer of CLOCK_REALTIME waits for midnight.
    func hasArmedTimer() throws -> Bool {
        let directory = "/proc/\(process.pid)/fdinfo"
        return try FileManager.default.contentsOfDirectory(atPath: directory)
            .compactMap { try? String(contentsOfFile: "\(directory)/\($0)", encoding: .utf8) }
            .map { $0.split(separator: "\n") }
            .contains { lines in
                lines.contains { $0.hasPrefix("it_value:") && !$0.hasSuffix("(0, 0)") }
                    && !lines.contains("clockid: 0")
            }
    }

    private func statusNumber(_ key: String, _ directory: String = "") throws -> Int {
        let status = try String(contentsOfFile: "/proc/\(process.pid)/\(directory)status", encoding: .utf8)
        guard let line = status.split(separator: "\n").first(where: { $0.hasPrefix(key + ":") }),
            let number = line.dropFirst(key.count + 1).split(whereSeparator: \.isWhitespace).first
                .flatMap({ Int($0) })
        else { throw TestFailure("no \(key) in the status of process \(process.pid)") }
        return number
    }
}
