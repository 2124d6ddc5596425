import CLinux
import Glibc

/// A tracepoint as the running kernel has it.
struct Tracepoint: Equatable {
    /// The tracepoint's system and event, for example `signal:signal_generate`.
    let name: String
    /// The number for perf_event_open(2).
    let id: UInt64
    /// Describes the fields of a record (Documentation/trace/events.rst).
    let format: String

    /// Reads tracepoints below `root`. Without `root`, reads them below the two places where tracefs is mounted, else
    /// below a mount of our own that is attached nowhere and ends with this call. Returns them in the order of `names`.
    ///
    /// Throws `ENOENT` if the kernel lacks one.
    static func find(_ names: [String], root: String?) throws(KernelFailure) -> [Tracepoint] {
        if let root { return try read(names, below: try Descriptor.open(root, O_DIRECTORY), named: root) }
        for place in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
            if let found = try? find(names, root: place) { return found }
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
        _ names: [String], below directory: borrowing Descriptor, named root: String
    ) throws(KernelFailure) -> [Tracepoint] {
        var found: [Tracepoint] = []
        for name in names {
            let path = "events/" + String(name.map { $0 == ":" ? "/" : $0 })
            let id = try text(below: directory, "\(path)/id", named: root)
            let format = try text(below: directory, "\(path)/format", named: root)
            guard let id = id.split(separator: "\n").first.flatMap({ UInt64($0) }) else {
                throw KernelFailure(operation: "parse", subject: "\(root)/\(path)/id", errno: EBADMSG)
            }
            found.append(Tracepoint(name: name, id: id, format: format))
        }
        return found
    }

    private static func text(
        below directory: borrowing Descriptor, _ path: String, named root: String
    ) throws(KernelFailure) -> String {
        let name = "\(root)/\(path)"
        let number = openat(directory.rawValue, path, O_RDONLY | O_CLOEXEC)
        guard number >= 0 else { throw KernelFailure(operation: "open", subject: name, errno: errno) }
        return try Files.text(in: Descriptor(owning: number), named: name, limit: 1 << 16)
    }

    /// Where a record has this field of four bytes, which has a line such as
    /// `field:pid_t pid;	offset:36;	size:4;	signed:1;`.
    func offset(of field: String) throws(KernelFailure) -> Int {
        for line in format.split(separator: "\n") {
            let parts = line.split(whereSeparator: { $0 == ";" || $0 == "\t" || $0 == " " })
            guard let name = parts.firstIndex(where: { $0 == field }), parts.count > name + 2,
                parts[name + 2] == "size:4", parts[name + 1].hasPrefix("offset:"),
                let offset = UInt16(parts[name + 1].dropFirst("offset:".count))
            else { continue }
            return Int(offset)
        }
        throw KernelFailure(operation: "find field \(field) of", subject: name, errno: EBADMSG)
    }
}
