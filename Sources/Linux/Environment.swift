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

    /// The variables that a process was started with (proc_pid_environ(5)); none if they may not be read.
    ///
    /// - Parameter process: the name of its directory in `/proc`: a process id, or `self`.
    public static func variables(of process: String) -> [(name: String, value: String)] {
        let whole = (try? WholeFile.read("/proc/\(process)/environ")) ?? []
        return whole.split(separator: 0).compactMap { bytes in
            guard let equals = bytes.firstIndex(of: UInt8(ascii: "=")) else { return nil }
            return (
                String(decoding: bytes[..<equals], as: UTF8.self),
                String(decoding: bytes[(equals + 1)...], as: UTF8.self)
            )
        }
    }
}
