import Foundation
import Glibc

/// The paths of the programs that tests run.
public enum Programs {
    /// The root of the source tree.
    public static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent().path

    /// The path of a program in PATH.
    public static func inPath(_ program: String) -> String? {
        let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
        return path.split(separator: ":").map { "\($0)/\(program)" }.first { access($0, X_OK) == 0 }
    }

    /// The path of an executable target of this package. It is built beside the tests, or is in the directory that
    /// APPSTATED_PROGRAMS names, to measure what is shipped.
    public static func built(_ product: String) -> String? {
        if let directory = ProcessInfo.processInfo.environment["APPSTATED_PROGRAMS"] {
            let path = "\(directory)/\(product)"
            if access(path, X_OK) == 0 { return path }
        }
        // The runner gets the test bundle as an argument, or is the bundle itself.
        let bundle = CommandLine.arguments.first { $0.hasSuffix(".xctest") }
        guard let bundle else { return nil }
        let path = URL(fileURLWithPath: bundle).deletingLastPathComponent().appendingPathComponent(product)
            .path
        return access(path, X_OK) == 0 ? path : nil
    }

    /// The system's own Python, because that has the system's D-Bus modules.
    public static let python = "/usr/bin/python3"

    /// Whether that Python is there and has a module.
    public static func pythonHas(_ module: String) -> Bool {
        guard access(python, X_OK) == 0, let probe = try? Child(python, ["-c", "import \(module)"]) else {
            return false
        }
        return (try? probe.waitForExit()) == .exited(0)
    }

    /// Copies a program with its permissions. Not by this process: one that it starts meanwhile would inherit
    /// the file open for writing, and then the file could not be executed.
    public static func copy(_ source: String, to path: String) throws {
        let copy = try Child("cp", ["--", source, path])
        guard try copy.waitForExit() == .exited(0) else { throw TestFailure(copy.errors) }
    }

    /// The path of a product that was built beside the running program.
    public static func beside(_ product: String) -> String? {
        let own = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath()
        let path = own.deletingLastPathComponent().appendingPathComponent(product).path
        return access(path, X_OK) == 0 ? path : nil
    }
}
