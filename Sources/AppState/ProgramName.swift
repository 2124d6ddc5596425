internal import Glibc

/// The name of the running program.
enum ProgramName {
    /// The name of its file, in the form of an application id: up to 255 characters of `[A-Za-z0-9._-]`.
    static var applicationID: String {
        let path = CommandLine.arguments.first ?? ""
        let name = path.split(separator: "/").last.map(String.init) ?? "application"
        return id(of: name)
    }

    static func id(of name: String) -> String {
        let scalars = name.unicodeScalars.prefix(255).map { scalar -> Character in
            switch scalar {
            case "a"..."z", "A"..."Z", "0"..."9", ".", "_", "-": Character(scalar)
            default: "-"
            }
        }
        return scalars.isEmpty ? "application" : String(scalars)
    }
}

/// The application's log: standard error, which goes to systemd's journal or to a terminal.
enum Log {
    static func say(_ line: String) {
        let bytes = Array("appstate: \(line)\n".utf8)
        _ = bytes.withUnsafeBytes { write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}
