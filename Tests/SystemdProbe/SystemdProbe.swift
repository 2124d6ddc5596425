import Systemd

/// Calls code that reads the environment of its process, so that tests need not change their own.
@main
struct SystemdProbe {
    static func main() {
        Service.notify(CommandLine.arguments.dropFirst().joined(separator: "\n"))
    }
}
