/// A line of `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).
struct Mount {
    /// The part of its file system that is mounted.
    let root: String
    let mountPoint: String
    /// For example `cgroup2`.
    let fileSystem: String
    /// Options of the file system, for example `rw` and `memory`.
    let options: [Substring]

    /// A line such as `41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw`; nil for text
    /// that is no such line.
    init?(mountinfo line: String) {
        let fields = line.split(separator: " ")
        guard fields.count > 6, let dash = fields[6...].firstIndex(of: "-"), dash + 1 < fields.count else {
            return nil
        }
        root = Self.unescape(fields[3])
        mountPoint = Self.unescape(fields[4])
        fileSystem = String(fields[dash + 1])
        options = dash + 3 < fields.count ? fields[dash + 3].split(separator: ",") : []
    }

    /// Calls `body` with each mount that we see, until it returns false.
    static func forEach(proc: Proc, _ body: (Mount) -> Bool) throws(KernelFailure) {
        try Files.forEachLine(of: path(proc)) { line in
            Mount(mountinfo: line.text).map(body) ?? true
        }
    }

    /// The file that lists them.
    static func path(_ proc: Proc) -> String { "\(proc.root)/self/mountinfo" }

    /// The kernel writes blank, tab, newline and backslash as a backslash and three octal digits.
    private static func unescape(_ field: Substring) -> String {
        var bytes: [UInt8] = []
        var rest = Array(field.utf8)[...]
        while let byte = rest.popFirst() {
            if byte == UInt8(ascii: "\\"), rest.count >= 3,
                let value = UInt8(String(decoding: rest.prefix(3), as: UTF8.self), radix: 8)
            {
                bytes.append(value)
                rest.removeFirst(3)
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}

extension Proc {
    /// Whether a path is on a file system that a process serves (FUSE): looking at a file there waits for that process.
    /// Looks at nothing but the list of mounts. True if that cannot be read.
    ///
    /// - Parameter path: absolute, without symbolic links.
    public func isOnFUSE(_ path: String) -> Bool {
        var longest = -1
        var isFUSE = true
        do throws(KernelFailure) {
            try Mount.forEach(proc: self) { mount in
                let point = mount.mountPoint
                let isAbove =
                    point == "/" || path.isSameBytes(as: point) || path.hasBytes(prefix: point + "/")
                // The last mount on a place is the visible one.
                if isAbove, point.utf8.count >= longest {
                    longest = point.utf8.count
                    isFUSE = mount.fileSystem == "fuse" || mount.fileSystem.hasBytes(prefix: "fuse.")
                }
                return true
            }
        } catch {
            return true
        }
        return isFUSE
    }
}
