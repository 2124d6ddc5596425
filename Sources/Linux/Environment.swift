import Glibc

/// The environment of this process.
public enum Environment {
    /// What a variable says; nil: it is not set, or empty.
    public static subscript(name: String) -> String? {
        getenv(name).map { String(cString: $0) }.flatMap { $0.isEmpty ? nil : $0 }
    }
}
