import AppStateBus
import Glibc
import Linux
import Systemd

/// Tells that the program of a suspended application is started once more: the second process waits for the first, or
/// takes it for dead.
///
/// The kernel tells that the program's file is opened, inotify(7), by whomever and for whatever; then it is looked whether
/// a process of our user runs it that did not before. For a script the file is the script's, not its interpreter's.
final class StartWatch {
    private let loop: EventLoop
    private let journal: Journal
    private let needed: (_ pid: Int32, _ other: Int32) -> Void
    private let proc = Proc()
    private let inotify: Descriptor
    private var source: Source?
    private var timer: Timer?
    /// By the number that inotify has given: applications may run the same program.
    private var programs: [Int32: Program] = [:]
    /// Those whose file was opened, and how often it was looked since.
    private var opened: [Int32: Int] = [:]

    private struct Program {
        let path: String
        let isScript: Bool
        var pids: Set<Int32>
        /// Those that ran it when it was looked last.
        var known: Set<Int32>
    }

    /// When it is looked after the file was opened, in microseconds: at first the kernel has not exchanged the program yet.
    private static let looks: [UInt64] = [1_000, 5_000, 20_000, 80_000, 320_000]
    /// The beginnings of programs that run others: who starts one of them starts something else, as a rule.
    private static let interpreters = [
        "python", "perl", "ruby", "node", "gjs", "java", "mono", "bash", "dash", "sh",
    ]
    /// Arguments among which a script's path is: `#!/usr/bin/env -S python3 -u`.
    private static let mostArguments = 4

    /// - Parameter needed: gets the application's process, and the one that was started.
    init(
        loop: EventLoop, journal: Journal, needed: @escaping (_ pid: Int32, _ other: Int32) -> Void
    ) throws {
        self.loop = loop
        self.journal = journal
        self.needed = needed
        let number = inotify_init1(Int32(IN_CLOEXEC) | Int32(IN_NONBLOCK))
        guard number >= 0 else {
            throw KernelFailure(operation: "watch", subject: "programs", errno: errno)
        }
        inotify = Descriptor(owning: number)
        source = try loop.watch(number) { [unowned self] _ in dispatch() }
        timer = try loop.timer { [unowned self] in look() }
    }

    /// The processes of the suspended applications, each the main one.
    func watch(_ suspended: Set<Int32>) {
        for (watch, program) in programs {
            programs[watch]?.pids.formIntersection(suspended)
            guard program.pids.isDisjoint(with: suspended) else { continue }
            programs[watch] = nil
            opened[watch] = nil
            inotify_rm_watch(inotify.rawValue, watch)
        }
        let watched = Set(programs.values.flatMap(\.pids))
        for pid in suspended.subtracting(watched) { add(pid) }
    }

    private func add(_ pid: Int32) {
        let script = Self.script(of: pid)
        // What it runs is not known: `python3 -m module`, say.
        if script == nil, let name = try? proc.program(of: pid),
            Self.interpreters.contains(where: {
                name == $0 || name.hasPrefix($0) && name.last?.isNumber == true
            })
        {
            return
        }
        let path = script ?? "/proc/\(pid)/exe"
        let watch = inotify_add_watch(inotify.rawValue, path, UInt32(IN_OPEN))
        guard watch >= 0 else {
            // Of a sandboxed one, say, which cannot be started by its file from without.
            journal.log(.debug, "\(path): \(String(cString: strerror(errno)))")
            return
        }
        if programs[watch] == nil {
            programs[watch] = Program(path: path, isScript: script != nil, pids: [], known: [])
        }
        programs[watch]?.pids.insert(pid)
        if let program = programs[watch] { programs[watch]?.known = running(program) }
    }

    /// The script that an interpreter runs: the kernel puts its path after the interpreter's own arguments (execve(2),
    /// "Interpreter scripts").
    private static func script(of pid: Int32) -> String? {
        guard let text = try? TextFile.read("/proc/\(pid)/cmdline") else { return nil }
        return text.split(separator: "\0", omittingEmptySubsequences: false).dropFirst().prefix(mostArguments)
            .first { $0.hasPrefix("/") && beginsAsScript(String($0)) }.map(String.init)
    }

    private static func beginsAsScript(_ path: String) -> Bool {
        let number = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard number >= 0 else { return false }
        defer { close(number) }
        var bytes: [UInt8] = [0, 0]
        return read(number, &bytes, 2) == 2 && bytes == Array("#!".utf8)
    }

    // MARK: What is started

    private func dispatch() {
        var buffer = [UInt8](repeating: 0, count: 4_096)
        while true {
            let count = read(inotify.rawValue, &buffer, buffer.count)
            guard count > 0 else { break }
            buffer.withUnsafeBytes { bytes in
                var place = 0
                // struct inotify_event: wd, mask, cookie, len, and a name of that length.
                while place + 16 <= count {
                    let watch = bytes.loadUnaligned(fromByteOffset: place, as: Int32.self)
                    let length = bytes.loadUnaligned(fromByteOffset: place + 12, as: UInt32.self)
                    // One that is opened all the time is not looked at all the time.
                    if programs[watch] != nil, opened[watch] == nil { opened[watch] = 0 }
                    place += 16 + Int(length)
                }
            }
        }
        if !opened.isEmpty { timer?.arm(at: loop.now + Self.looks[0]) }
    }

    private func look() {
        for (watch, count) in opened {
            guard let program = programs[watch] else {
                opened[watch] = nil
                continue
            }
            let present = running(program)
            let new = present.subtracting(program.known)
            programs[watch]?.known = present
            if let other = new.min() {
                for pid in program.pids { needed(pid, other) }
            }
            opened[watch] = new.isEmpty && count + 1 < Self.looks.count ? count + 1 : nil
        }
        if let least = opened.values.min() { timer?.arm(at: loop.now + Self.looks[least]) }
    }

    /// Our user's processes that run a program.
    private func running(_ program: Program) -> Set<Int32> {
        guard let pids = try? proc.processes(), let file = File(program.path) else { return [] }
        return Set(
            pids.filter { pid in
                guard program.isScript else { return File("/proc/\(pid)/exe") == file }
                return Self.script(of: pid).map { File($0) == file } ?? false
            })
    }

    /// Which file a path leads to. Other users' processes do not say what they run.
    private struct File: Equatable {
        let device: UInt
        let inode: UInt

        init?(_ path: String) {
            var status = stat()
            guard stat(path, &status) == 0 else { return nil }
            (device, inode) = (UInt(status.st_dev), UInt(status.st_ino))
        }
    }
}
