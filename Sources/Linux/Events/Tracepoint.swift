import CLinux
import Glibc

/// A tracepoint as the running kernel has it.
struct Tracepoint: Equatable {
    /// The tracepoint's system and event, for example `signal:signal_generate`.
    let name: String
    /// The number for perf_event_open(2).
    let id: UInt64
    /// The offsets of the fields in a record.
    let format: Format

    /// Reads tracepoints below `root`. Without `root`, reads them below the two places where tracefs is mounted, else
    /// below a mount of our own that is attached nowhere and ends with this call. Returns them in the order of `names`.
    ///
    /// Throws `ENOENT` if the kernel lacks one.
    static func find(_ names: [String], root: String?) throws(KernelFailure) -> [Tracepoint] {
        if let root { return try read(names, mountedAt: root) }
        for place in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
            if let found = try? read(names, mountedAt: place) { return found }
        }
        return try read(names, below: try detachedMount(), named: "tracefs")
    }

    private static func detachedMount() throws(KernelFailure) -> Descriptor {
        let context = try Descriptor.taking(clinux_fsopen("tracefs"), "fsopen", "tracefs")
        let created = clinux_fsconfig_create(context.rawValue)
        guard created >= 0 else {
            throw KernelFailure(operation: "fsconfig", subject: "tracefs", errno: -created)
        }
        return try Descriptor.taking(clinux_fsmount(context.rawValue), "fsmount", "tracefs")
    }

    private static func read(
        _ names: [String], mountedAt root: String
    ) throws(KernelFailure) -> [Tracepoint] {
        try read(names, below: try Descriptor.open(root, O_DIRECTORY), named: root)
    }

    private static func read(
        _ names: [String], below directory: borrowing Descriptor, named root: String
    ) throws(KernelFailure) -> [Tracepoint] {
        var found: [Tracepoint] = []
        for name in names { found.append(try read(name, below: directory, named: root)) }
        return found
    }

    private static func read(
        _ name: String, below directory: borrowing Descriptor, named root: String
    ) throws(KernelFailure) -> Tracepoint {
        let path = "events/" + String(name.map { $0 == ":" ? "/" : $0 })
        let id = try text(below: directory, "\(path)/id", named: root)
        let format = try text(below: directory, "\(path)/format", named: root)
        guard let id = id.split(separator: "\n").first.flatMap({ UInt64($0) }) else {
            throw KernelFailure(operation: "parse", subject: "\(root)/\(path)/id", errno: EBADMSG)
        }
        return Tracepoint(name: name, id: id, format: Format(parsing: format))
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

extension Tracepoint {
    /// The fields of a tracepoint's record, from its file `format` (Documentation/trace/events.rst).
    struct Format: Equatable {
        /// Offset in the record's raw data, and size, both in bytes.
        struct Field: Equatable {
            let offset: Int
            let size: Int
        }

        private let fields: [String: Field]

        /// Takes the lines that describe a field, and ignores the others.
        init(parsing text: String) {
            var fields: [String: Field] = [:]
            for line in text.utf8.split(separator: UInt8(ascii: "\n")) {
                if let (name, field) = Self.field(line) { fields[name] = field }
            }
            self.fields = fields
        }

        /// The offset of a field of four bytes; nil if there is no field of that name and size.
        func offset(ofInt32 name: String) -> Int? {
            fields[name].flatMap { $0.size == 4 ? $0.offset : nil }
        }

        /// `field:int sig;	offset:8;	size:4;	signed:1;`
        private static func field(_ line: Substring.UTF8View) -> (name: String, field: Field)? {
            var name: String?
            var offset: Int?
            var size: Int?
            for part in line.split(separator: UInt8(ascii: ";")) {
                let part = part.drop { $0 == UInt8(ascii: "\t") || $0 == UInt8(ascii: " ") }
                guard let colon = part.firstIndex(of: UInt8(ascii: ":")) else { continue }
                let value = part[part.index(after: colon)...]
                switch Substring(part[..<colon]) {
                case "field":
                    name = value.split(separator: UInt8(ascii: " ")).last.map { String(Substring($0)) }
                case "offset": offset = Int(Substring(value))
                case "size": size = Int(Substring(value))
                default: continue
                }
            }
            guard let name, let offset, let size, offset >= 0, offset < 1024 else { return nil }
            return (name, Field(offset: offset, size: size))
        }
    }
}
