import Glibc

/// The environment of this process.
public enum Environment {
    /// The value of a variable; nil if it is not set or is empty.
    public static subscript(name: String) -> String? {
        getenv(name).map { String(cString: $0) }.flatMap { $0.isEmpty ? nil : $0 }
    }
}
