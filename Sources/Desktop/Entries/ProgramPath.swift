import Glibc
import Linux

/// The directories in which programs are looked for: `PATH`.
public struct ProgramPath: Equatable, Sendable {
    private let directories: [String]

    /// - Parameter path: directories separated by colons; nil: the value of this process's `PATH`.
    public init(_ path: String? = nil) {
        let path = path ?? Environment["PATH"] ?? "/usr/local/bin:/usr/bin:/bin"
        // An empty or relative directory would depend on the current directory.
        directories = path.split(separator: ":").map(String.init).filter {
            $0.utf8.first == UInt8(ascii: "/")
        }
    }

    /// The file of a program. Nil: there is no executable file.
    ///
    /// - Parameters:
    ///   - program: an absolute path, a path relative to `directory`, or a name.
    ///   - directory: the program's working directory; nil: relative paths are not found.
    public func find(_ program: String, from directory: String? = nil) -> String? {
        guard !program.isEmpty, !program.utf8.contains(0) else { return nil }
        if program.utf8.first == UInt8(ascii: "/") { return Self.isProgram(program) ? program : nil }
        if program.utf8.contains(UInt8(ascii: "/")) {
            guard let path = directory.map({ "\($0)/\(program)" }) else { return nil }
            return Self.isProgram(path) ? path : nil
        }
        return directories.lazy.map { "\($0)/\(program)" }.first(where: Self.isProgram)
    }

    private static func isProgram(_ path: String) -> Bool {
        var information = stat()
        return stat(path, &information) == 0 && information.st_mode & S_IFMT == S_IFREG
            && access(path, X_OK) == 0
    }
}
