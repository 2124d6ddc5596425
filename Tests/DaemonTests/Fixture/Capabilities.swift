import Foundation
import TestSupport

/// Sets of capabilities, see capabilities(7).
enum Capabilities {
    /// What systemd/appstated.service leaves the daemon, as setpriv(1) names it.
    static func ofUnit() throws -> Set<String> {
        let unit = try String(
            contentsOfFile: Programs.root + "/systemd/appstated.service", encoding: .utf8)
        let key = "CapabilityBoundingSet="
        guard let line = unit.split(separator: "\n").first(where: { $0.hasPrefix(key) }) else {
            throw TestFailure("the unit has no \(key)")
        }
        return Set(
            line.dropFirst(key.count).split(separator: " ").map { $0.dropFirst("CAP_".count).lowercased() })
    }

    /// All capabilities that setpriv(1) knows, except these.
    static func allBut(_ kept: Set<String>) throws -> [String] {
        let list = try Child("setpriv", ["--list-caps"])
        try list.waitForExit()
        return list.output.split(separator: "\n").map(String.init).filter { !kept.contains($0) }
    }
}
