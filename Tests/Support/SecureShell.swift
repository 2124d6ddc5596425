import Foundation
import Glibc

/// A second machine for `ssh`: what `ssh HOST` reaches with this environment's PATH. The server is started for each
/// connection, in this machine, without a port; its sessions have an environment of their own.
public final class SecureShell {
    /// A host that does not answer.
    public static let deadHost = "dead.example"

    private let directory: String

    private static let scripts = Programs.root + "/Tests/Support/Scripts"
    public static let isAvailable: Bool = {
        guard Programs.inPath("ssh") != nil, Programs.inPath("ssh-keygen") != nil,
            access(Programs.python, X_OK) == 0, let server = try? Child("\(scripts)/sshd", ["--find"])
        else { return false }
        return (try? server.waitForExit()) == .exited(0)
    }()
    public static let whatIsMissing = "needs ssh, sshd and python3: scripts/setup test"

    /// - Parameters:
    ///   - directory: one that exists and is empty.
    ///   - environment: the variables of each session.
    public init(in directory: String, environment: [String: String]) throws {
        self.directory = directory
        let lines = environment.map { "\($0.key)=\($0.value)\n" }.joined()
        try lines.write(toFile: directory + "/environment", atomically: true, encoding: .utf8)
        let child = try Child("\(Self.scripts)/sshd", [directory, "--prepare"])
        guard try child.waitForExit() == .exited(0) else { throw TestFailure(child.errors) }
        try link()
        let proxy =
            "\(Programs.python) \(Self.scripts)/cut.py \(directory)/totals $(cat \(directory)/limits) "
            + "\(Self.scripts)/sshd \(directory) -i"
        let hosts = """
            Host \(Self.deadHost)
                HostName 127.0.0.1
                Port 1
            Host * !\(Self.deadHost)
                ProxyCommand \(proxy)

            """
        let own = directory + "/ssh_config"
        try (hosts + String(contentsOfFile: own, encoding: .utf8))
            .write(toFile: own, atomically: true, encoding: .utf8)
        mkdir(directory + "/bin", 0o755)
        try "#!/bin/sh\nexec '\(Programs.inPath("ssh") ?? "ssh")' -F '\(own)' \"$@\"\n"
            .write(toFile: directory + "/bin/ssh", atomically: true, encoding: .utf8)
        chmod(directory + "/bin/ssh", 0o755)
    }

    /// The variables with which `ssh` comes here.
    public var environment: [String: String?] {
        let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
        // No window asks for a password.
        return ["PATH": "\(directory)/bin:\(path)", "DISPLAY": nil, "SSH_ASKPASS_REQUIRE": "never"]
    }

    /// From now on the link is cut after some bytes.
    ///
    /// - Parameters:
    ///   - up: so many bytes to the server; nil: no limit.
    ///   - down: the same for those from the server.
    public func link(cutAfter up: Int? = nil, down: Int? = nil) throws {
        try "\(up ?? -1) \(down ?? -1)".write(
            toFile: directory + "/limits", atomically: true, encoding: .utf8)
    }

    /// How many bytes went to the server and came from it over the last link.
    public func totals() throws -> (up: Int, down: Int) {
        let words = try String(contentsOfFile: directory + "/totals", encoding: .utf8)
            .split(whereSeparator: \.isWhitespace).compactMap { Int($0) }
        guard words.count == 2 else { throw TestFailure("the link has not counted") }
        return (words[0], words[1])
    }

    /// From now on the server accepts no key.
    public func refuseKeys() throws {
        try "".write(toFile: directory + "/authorized_keys", atomically: true, encoding: .utf8)
    }
}
