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
    /// Those whose file was opened.
    private var opened: [Int32: Opening] = [:]
    /// Not before, there is a look.
    private var nextLook: UInt64 = 0

    private struct Program {
        let file: FileIdentity
        /// Its path, where it is a script.
        let script: String?
        var pids: Set<Int32> = []
        /// Those that ran it when it was looked last.
        var known: Set<Int32> = []
    }

    /// When it is looked after the file was opened, in microseconds: at first the kernel has not exchanged the program yet.
    private static let looks: [UInt64] = [1_000, 5_000, 20_000, 80_000, 320_000]
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

    /// Watches the programs of applications that are suspended, or about to be, each known by its main process.
    func watch(_ resting: Set<Int32>) {
        for (watch, program) in programs {
            programs[watch]?.pids.formIntersection(resting)
            guard program.pids.isDisjoint(with: resting) else { continue }
            programs[watch] = nil
            opened[watch] = nil
            inotify_rm_watch(inotify.rawValue, watch)
        }
        let new = resting.subtracting(programs.values.flatMap(\.pids))
        let added = Set(new.compactMap(add))
        guard !added.isEmpty else { return }
        let running = Running(proc, scripts: added.contains { programs[$0]?.script != nil })
        for watch in added {
            if let program = programs[watch] { programs[watch]?.known = running.of(program) }
        }
    }

    /// - Returns: the watch for its program; nil: nothing is watched.
    private func add(_ pid: Int32) -> Int32? {
        var script: String?
        if let name = try? proc.program(of: pid),
            Interpreters.names.contains(where: {
                name == $0 || name.hasPrefix($0) && name.last?.isNumber == true
            })
        {
            // Of other programs, no file that an argument names is looked at: its file system may hang.
            script = self.script(of: pid)
            // What it runs is not known: `python3 -m module`, say.
            if script == nil { return nil }
        }
        let path = script ?? "/proc/\(pid)/exe"
        let watch = inotify_add_watch(inotify.rawValue, path, UInt32(IN_OPEN))
        guard watch >= 0, let file = FileIdentity(path) else {
            // Of a sandboxed one, say, which cannot be started by its file from without.
            journal.log(.debug, "\(path): \(String(cString: strerror(errno)))")
            return nil
        }
        programs[watch, default: Program(file: file, script: script)].pids.insert(pid)
        return watch
    }

    /// The script that an interpreter runs: the kernel puts its path after the interpreter's own arguments (execve(2),
    /// "Interpreter scripts").
    private func script(of pid: Int32) -> String? {
        Self.arguments(of: pid).first(where: Self.beginsAsScript)
    }

    /// Absolute paths among its first arguments.
    private static func arguments(of pid: Int32) -> [String] {
        guard let text = try? TextFile.read("/proc/\(pid)/cmdline") else { return [] }
        return text.split(separator: "\0", omittingEmptySubsequences: false).dropFirst().prefix(mostArguments)
            .filter { $0.hasPrefix("/") }.map(String.init)
    }

    /// Only a regular file is opened: opening a FIFO or a device may do something.
    private static func beginsAsScript(_ path: String) -> Bool {
        var status = stat()
        guard stat(path, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return false }
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
                    if programs[watch] != nil { note(watch) }
                    place += 16 + Int(length)
                }
            }
        }
        arm()
    }

    private func note(_ watch: Int32) {
        if opened[watch] == nil {
            opened[watch] = Opening(due: loop.now + Self.looks[0])
        } else {
            // One that is opened all the time is not looked at all the time.
            opened[watch]?.isRepeated = true
        }
    }

    private func arm() {
        guard let due = opened.values.map(\.due).min() else { return }
        timer?.arm(at: max(due, nextLook))
    }

    private func look() {
        let begin = Clock.monotonicMicroseconds
        let due = opened.filter { $0.value.due <= begin }
        // One walk for all that are due.
        let running = Running(proc, scripts: due.keys.contains { programs[$0]?.script != nil })
        for (watch, opening) in due {
            guard let program = programs[watch] else {
                opened[watch] = nil
                continue
            }
            let present = running.of(program)
            let new = present.subtracting(program.known).filter { pid in
                // A process that another instance has started for itself needs nobody.
                !proc.lineage(of: pid).dropFirst().contains { present.contains($0.pid) }
            }
            programs[watch]?.known = present
            for other in new.sorted() { for pid in program.pids { needed(pid, other) } }
            opened[watch] = opening.next(after: begin)
        }
        // Whoever opens programs all the time gets a tenth of a processor for it.
        let end = Clock.monotonicMicroseconds
        nextLook = end + 9 * (end - min(begin, end))
        arm()
    }

    /// A file that was opened, and the looks that are due for that.
    private struct Opening {
        var due: UInt64
        var count = 0
        /// It was opened anew since.
        var isRepeated = false

        /// The next look; nil: there is none. That one process was found is no reason to look no more: the kernel tells of
        /// two that open the file as of one.
        func next(after now: UInt64) -> Opening? {
            var next = self
            next.count += 1
            if next.count == StartWatch.looks.count {
                guard isRepeated else { return nil }
                next = Opening(due: 0)
            }
            next.due = now + StartWatch.looks[next.count]
            return next
        }
    }

    /// Our user's processes, and what they run.
    private struct Running {
        private var programs: [FileIdentity: Set<Int32>] = [:]
        private var scripts: [(pid: Int32, path: String)] = []

        init(_ proc: Proc, scripts isScripts: Bool) {
            for pid in (try? proc.processes()) ?? [] {
                // Other users' processes do not say what they run.
                guard let file = FileIdentity("/proc/\(pid)/exe") else { continue }
                programs[file, default: []].insert(pid)
                guard isScripts else { continue }
                for path in StartWatch.arguments(of: pid) { scripts.append((pid, path)) }
            }
        }

        func of(_ program: Program) -> Set<Int32> {
            guard let script = program.script else { return programs[program.file] ?? [] }
            // Whatever else stands in an argument is not looked at: it may be on a file system that hangs.
            let name = script.split(separator: "/").last
            let same = scripts.filter {
                $0.path.split(separator: "/").last == name && FileIdentity($0.path) == program.file
            }
            return Set(same.map(\.pid))
        }
    }
}
