import Glibc

/// The kernel's lists of CPUs, such as `0-3,8`.
enum CPUList {
    /// The CPUs that are online now.
    static func online() throws(KernelFailure) -> [Int32] {
        let path = "/sys/devices/system/cpu/online"
        let text = try Files.text(in: try Descriptor.open(path), named: path, limit: 1 << 14)
        guard let cpus = parse(text), !cpus.isEmpty else {
            throw KernelFailure(operation: "parse", subject: path, errno: EBADMSG)
        }
        return cpus
    }

    /// Nil for text that is not such a list, or that exceeds 8,192 CPUs, the most that Linux can be built
    /// for.
    static func parse(_ text: String) -> [Int32]? {
        var found: [Int32] = []
        for part in text.split(whereSeparator: { $0 == "," || $0 == "\n" }) {
            let bounds = part.split(separator: "-", omittingEmptySubsequences: false).map { Int32($0) }
            guard let first = bounds.first ?? nil, let last = bounds.last ?? nil, bounds.count <= 2,
                first >= 0, first <= last, last < 8192
            else { return nil }
            found += first...last
        }
        return found
    }
}
