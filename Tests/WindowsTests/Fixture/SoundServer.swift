import Foundation
import Glibc
import TestSupport
import Testing
import Windows

/// A PulseAudio without hardware, in its own directory. When it is released, it ends and the directory is removed.
final class SoundServer {
    private let scratch: Scratch
    /// In the form of XDG_RUNTIME_DIR.
    var directory: String { scratch.path }
    private var process: Child?

    static let isAvailable = ["pulseaudio", "pacat"].allSatisfy { Programs.inPath($0) != nil }
    static let whatIsMissing: Comment = "needs pulseaudio and pacat: scripts/setup test"

    /// - Parameter isRunning: false: only the directory is made.
    init(isRunning: Bool = true) throws {
        scratch = try Scratch("sound")
        if isRunning { try start() }
    }

    deinit { try? end() }

    var socket: String { directory + "/pulse/native" }

    /// The environment of clients and of an agent.
    var environment: [String: String?] {
        [
            "XDG_RUNTIME_DIR": directory, "HOME": directory, "PULSE_SERVER": nil, "PULSE_RUNTIME_PATH": nil,
            "DBUS_SESSION_BUS_ADDRESS": nil, "DISPLAY": nil,
        ]
    }

    /// Starts it and waits until it listens.
    func start() throws {
        mkdir(directory + "/pulse", 0o700)
        unlink(directory + "/notify")
        let ready = try NotifySocket(in: directory)
        let child = try Child(
            "pulseaudio",
            [
                "-n", "--daemonize=no", "--use-pid-file=no", "--exit-idle-time=-1", "--disable-shm=yes",
                "--load=module-null-sink", "--load=module-native-protocol-unix socket=\(socket)",
            ], environment: environment.merging(["NOTIFY_SOCKET": ready.path]) { $1 })
        process = child
        try ready.wait(for: "READY=1", from: child)
    }

    func end() throws {
        try process?.end()
        process = nil
    }

    /// A process that plays silence until it is released.
    func player() throws -> Child {
        try Child("pacat", ["--playback", "--raw", "/dev/zero"], environment: environment)
    }
}
