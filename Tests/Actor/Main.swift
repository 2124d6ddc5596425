import AppStateBus
import Glibc

/// An application for tests, with a connection of its own. It reads commands line by line on standard input.
///
/// A line is `NUMBER COMMAND WORD…`; the answer is `#NUMBER ok WORD…` or `#NUMBER error NAME`. For each signal
/// that it gets, it writes a line `signal PATH INTERFACE MEMBER WORD…`. When its input ends, it ends, together
/// with the processes that it made.
@main
enum Main {
    static func main() {
        do {
            if CommandLine.arguments.dropFirst().first == "--version" {
                print("AppActor")
                return
            }
            let application = try Application()
            try application.run()
        } catch {
            print("failed: \(error)")
            exit(1)
        }
    }
}

/// Writes a line at once.
func say(_ line: String) {
    let bytes = Array((line + "\n").utf8)
    var rest = bytes[...]
    while !rest.isEmpty {
        let count = rest.withUnsafeBytes { write(STDOUT_FILENO, $0.baseAddress, $0.count) }
        guard count > 0 else { return }
        rest = rest.dropFirst(count)
    }
}
