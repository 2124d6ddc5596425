import AppStateBus

/// Calls what reads the environment of its process, so that tests need not change their own.
@main
struct BusProbe {
    static func main() {
        Service.notify(CommandLine.arguments.dropFirst().joined(separator: "\n"))
    }
}
