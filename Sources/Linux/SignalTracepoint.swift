import CLinux
import Glibc

/// Where the kernel's tracepoint `signal:signal_generate` puts its fields.
struct SignalTracepoint: Equatable {
    /// The number for perf_event_open(2).
    let id: UInt64
    /// Offsets of the fields `sig` and `pid` in a record's raw data: four bytes each.
    let format: Format

    struct Format: Equatable {
        let signal: Int
        let target: Int

        /// Reads a tracepoint's `format` file (Documentation/trace/events.rst); nil where a field is missing
        /// or is not four bytes.
        init?(parsing text: String) {
            var offsets: [String: Int] = [:]
            for line in text.split(separator: "\n") {
                guard let (name, offset, size) = Self.field(line), size == 4 else { continue }
                offsets[name] = offset
            }
            guard let signal = offsets["sig"], let target = offsets["pid"] else { return nil }
            self.signal = signal
            self.target = target
        }

        /// `field:int sig;	offset:8;	size:4;	signed:1;`
        private static func field(_ line: Substring) -> (name: String, offset: Int, size: Int)? {
            var name: String?
            var offset: Int?
            var size: Int?
            for part in line.split(separator: ";") {
                let part = part.drop { $0 == "\t" || $0 == " " }
                guard let colon = part.firstIndex(of: ":") else { continue }
                let value = part[part.index(after: colon)...]
                switch part[..<colon] {
                case "field": name = value.split(separator: " ").last.map(String.init)
                case "offset": offset = Int(value)
                case "size": size = Int(value)
                default: continue
                }
            }
            guard let name, let offset, let size, offset >= 0, offset < 1024 else { return nil }
            return (name, offset, size)
        }
    }

    /// Reads it below `root`, or where none is given: below the two places where tracefs is mounted, else
    /// below a mount of our own that is attached nowhere and ends with this call.
    static func find(root: String?) throws(KernelFailure) -> SignalTracepoint {
        if let root { return try read(mountedAt: root) }
        for place in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
            if let found = try? read(mountedAt: place) { return found }
        }
        return try read(below: try detachedMount(), named: "tracefs")
    }

    private static func detachedMount() throws(KernelFailure) -> Descriptor {
        let context = try Descriptor.taking(clinux_fsopen("tracefs"), "fsopen", "tracefs")
        let created = clinux_fsconfig_create(context.rawValue)
        guard created >= 0 else {
            throw KernelFailure(operation: "fsconfig", subject: "tracefs", errno: -created)
        }
        return try Descriptor.taking(clinux_fsmount(context.rawValue), "fsmount", "tracefs")
    }

    private static func read(mountedAt root: String) throws(KernelFailure) -> SignalTracepoint {
        try read(below: try Descriptor.open(root, flags: O_DIRECTORY), named: root)
    }

    private static func read(
        below directory: borrowing Descriptor, named root: String
    ) throws(KernelFailure) -> SignalTracepoint {
        let path = "events/signal/signal_generate"
        let id = try text(below: directory, "\(path)/id", named: root)
        let format = try text(below: directory, "\(path)/format", named: root)
        guard let id = id.split(separator: "\n").first.flatMap({ UInt64($0) }),
            let format = Format(parsing: format)
        else { throw KernelFailure(operation: "parse", subject: "\(root)/\(path)", errno: EBADMSG) }
        return SignalTracepoint(id: id, format: format)
    }

    private static func text(
        below directory: borrowing Descriptor, _ path: String, named root: String
    ) throws(KernelFailure) -> String {
        let name = "\(root)/\(path)"
        let number = openat(directory.rawValue, path, O_RDONLY | O_CLOEXEC)
        guard number >= 0 else { throw KernelFailure(operation: "open", subject: name, errno: errno) }
        return try Files.text(in: Descriptor(owning: number), named: name, limit: 1 << 16)
    }
}
