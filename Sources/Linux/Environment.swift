import Glibc

/// The environments of processes.
public enum Environment {
    /// The value of a variable of this process; nil if it is not set or is empty.
    public static subscript(name: String) -> String? {
        getenv(name).map { String(cString: $0) }.flatMap { $0.isEmpty ? nil : $0 }
    }

    /// systemd.exec(5): several directories are separated by colons; the first is ours.
    public static func firstDirectory(of directories: String) -> String {
        String(directories.prefix { $0 != ":" })
    }
}
