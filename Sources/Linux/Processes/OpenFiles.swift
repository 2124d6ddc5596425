import Glibc

/// What some processes have open, as far as it matters here.
public struct OpenFiles: Sendable {
    /// A process that has each socket, by the socket's inode, and its descriptor there.
    public private(set) var sockets: [UInt32: (pid: Int32, number: Int32)] = [:]
    /// Their descriptors of `/dev/fuse`.
    public private(set) var fuse: [(pid: Int32, number: Int32)] = []
    /// The devices and pseudoterminals that they have open, without those of `standard`.
    private var lines: Set<Device> = []
    /// The same, for the descriptors 0 to 2 of any of them.
    private var standard: Set<Device> = []
    /// The pseudoterminals whose master ends they have.
    public private(set) var masters: Set<Int32> = []

    /// Processes that are gone, or out of our reach, count as having nothing open; those in another network namespace, as
    /// having no sockets.
    public init(of processes: some Sequence<Int32>, proc: Proc = Proc(), handed: HandedOver = HandedOver()) {
        for pid in processes {
            guard let files = try? proc.files(of: pid) else { continue }
            var isHere: Bool?
            for (number, file) in files {
                switch file {
                case .socket(let inode):
                    isHere = isHere ?? ((try? proc.sharesNetwork(with: pid, handed)) == true)
                    if isHere == true, sockets[inode] == nil { sockets[inode] = (pid, number) }
                case .fuse: fuse.append((pid, number))
                case .device(let device):
                    if number > 2 { lines.insert(device) } else { standard.insert(device) }
                case .master:
                    if let terminal = proc.terminal(ofMaster: number, in: pid) { masters.insert(terminal) }
                case .other: break
                }
            }
        }
    }

    /// The pseudoterminals of which they have either end.
    public var pseudoterminals: Set<Int32> {
        masters.union(
            lines.compactMap { line in
                if case .pseudoterminal(let number) = line { number } else { nil }
            })
    }

    /// A device that speaks for itself, such as a serial line; or a pseudoterminal that is such a line to another
    /// program: it is nobody's terminal, and that program has its other end.
    ///
    /// - Parameters:
    ///   - terminals: those of `pseudoterminals` that are somebody's controlling terminal.
    ///   - others: what all other processes have open. That takes a while, and is asked only of a program that has a
    ///     master end without a terminal.
    public func device(besides terminals: Set<Int32>, _ others: () -> OpenFiles) -> String? {
        let ends = Set(masters.map(Device.pseudoterminal))
        let ignored = standard.union(terminals.map(Device.pseudoterminal))
        if let line = lines.subtracting(ignored).subtracting(ends).map(\.name).min() { return line }
        let free = ends.subtracting(ignored).subtracting(lines)
        return free.isEmpty ? nil : free.intersection(others().lines).map(\.name).min()
    }
}

/// A character device of interest.
public enum Device: Hashable, Sendable {
    case named(String)
    /// `/dev/pts/NUMBER`
    case pseudoterminal(Int32)

    var name: String {
        switch self {
        case .named(let name): name
        case .pseudoterminal(let number): "/dev/pts/\(number)"
        }
    }

    /// Where the names of devices begin that speak for themselves, or that a program works with in the background:
    /// serial lines, input, made-up input, cameras, recorded sound, and devices that programs drive themselves.
    private static let names = [
        "/dev/ttyUSB", "/dev/ttyACM", "/dev/ttyS", "/dev/ttyAMA", "/dev/rfcomm", "/dev/input/event",
        "/dev/uinput",
        "/dev/video", "/dev/snd/pcm", "/dev/snd/midi", "/dev/bus/usb/", "/dev/hidraw",
    ]

    /// - Parameter link: what the link of a descriptor leads to.
    init?(link: String) {
        if link.hasBytes(prefix: "/dev/pts/") {
            guard let number = Int32(Substring(link.utf8.dropFirst(9))) else { return nil }
            self = .pseudoterminal(number)
            return
        }
        // The last letter is the direction: c for capture.
        guard Self.names.contains(where: { link.hasBytes(prefix: $0) }),
            !link.hasBytes(prefix: "/dev/snd/pcm") || link.hasBytes(suffix: "c")
        else { return nil }
        self = .named(link)
    }
}

extension Proc {
    /// The processes whose controlling terminal is one of these pseudoterminals.
    public func processes(on pseudoterminals: Set<Int32>) -> [Stat] {
        guard !pseudoterminals.isEmpty, let all = try? processes() else { return [] }
        return all.compactMap { try? stat($0) }.filter {
            $0.pseudoterminal.map(pseudoterminals.contains) ?? false
        }
    }

    /// The sockets among the process's open files: their inode numbers, and a descriptor of each.
    public func sockets(of pid: Int32) throws(KernelFailure) -> [UInt32: Int32] {
        var found: [UInt32: Int32] = [:]
        for (number, file) in try files(of: pid) {
            if case .socket(let inode) = file { found[inode] = number }
        }
        return found
    }

    fileprivate enum OpenFile {
        /// By its inode.
        case socket(UInt32)
        /// The end of a FUSE server (fuse(4)), whether it has mounted something or not.
        case fuse
        case device(Device)
        /// The master end of a pseudoterminal (pts(4)).
        case master
        case other
    }

    /// The process's open files, by their descriptors.
    fileprivate func files(of pid: Int32) throws(KernelFailure) -> [(number: Int32, file: OpenFile)] {
        let numbers: [Int32]
        do throws(KernelFailure) {
            numbers = try Files.numbers(in: path(pid, "fd"))
        } catch {
            throw failure(error.operation, pid, "fd", error.errno)
        }
        var found: [(number: Int32, file: OpenFile)] = []
        for number in numbers {
            let name = "fd/\(number)"
            switch Self.file(path(pid, name)) {
            case .success(.other): break
            case .success(let file): found.append((number, file))
            // Closed meanwhile. If the process is gone, it has no identity either.
            case .failure(let number) where number.value == ENOENT: continue
            case .failure(let number): throw failure("readlink", pid, name, number.value)
            }
        }
        return found
    }

    /// What the link of a descriptor leads to.
    private static func file(_ path: String) -> Result<OpenFile, ErrorNumber> {
        // `socket:[4294967295]` and the names of devices are shorter; a link longer than the buffer is something else.
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: 64) { buffer in
            guard let base = buffer.baseAddress else { return .failure(ErrorNumber(value: ENOMEM)) }
            let count = readlink(path, base, buffer.count)
            guard count >= 0 else { return .failure(ErrorNumber(value: errno)) }
            let link = UnsafeRawBufferPointer(UnsafeBufferPointer(rebasing: buffer[..<count]))
            var bytes = Bytes(link)
            if bytes.skip("socket:[") {
                return .success(bytes.unsigned32().map(OpenFile.socket) ?? .other)
            }
            guard link.starts(with: "/dev/".utf8) else { return .success(.other) }
            switch String(decoding: link, as: UTF8.self) {
            case "/dev/fuse": return .success(.fuse)
            case "/dev/ptmx", "/dev/pts/ptmx": return .success(.master)
            case let link: return .success(Device(link: link).map(OpenFile.device) ?? .other)
            }
        }
    }

    /// The pseudoterminal of a master end: `tty-index` in `/proc/PID/fdinfo/NUMBER`.
    fileprivate func terminal(ofMaster number: Int32, in pid: Int32) -> Int32? {
        var terminal: Int32?
        try? forEachLine(pid, "fdinfo/\(number)") { line in
            guard line.skip("tty-index:") else { return true }
            terminal = line.signed32()
            return false
        }
        return terminal
    }

    func sharesNetwork(with pid: Int32, _ handed: HandedOver) throws(KernelFailure) -> Bool {
        var own = Glibc.stat()
        var its = Glibc.stat()
        // The namespace of the socket through which the kernel is queried.
        let isKnown: Bool
        if let namespace = try handed.networkNamespace() {
            isKnown = fstat(namespace.rawValue, &own) == 0
        } else {
            isKnown = fstatat(AT_FDCWD, "\(root)/self/ns/net", &own, 0) == 0
        }
        guard isKnown else {
            throw KernelFailure(operation: "stat", subject: "\(root)/self/ns/net", errno: errno)
        }
        guard fstatat(AT_FDCWD, path(pid, "ns/net"), &its, 0) == 0 else {
            throw failure("stat", pid, "ns/net", errno)
        }
        return own.st_ino == its.st_ino && own.st_dev == its.st_dev
    }
}
