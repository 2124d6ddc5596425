import AppStateBus
import Glibc

/// An application for tests: a connection of its own, told what to do line by line on standard input.
///
/// A line is `NUMBER COMMAND WORD…`; it is answered by `#NUMBER ok WORD…` or `#NUMBER error NAME`. Each
/// signal it is sent becomes a line `signal PATH INTERFACE MEMBER WORD…`. It ends with its input, and so do
/// the processes that it made.
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
