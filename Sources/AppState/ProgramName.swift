internal import Glibc

/// What the program that runs is called.
enum ProgramName {
    /// Its file's name, as an application's id may be: `[A-Za-z0-9._-]`, 255 of them.
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

/// The application's log: standard error, where systemd's journal and a terminal have it from.
enum Log {
    static func say(_ line: String) {
        let bytes = Array("appstate: \(line)\n".utf8)
        _ = bytes.withUnsafeBytes { write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}
