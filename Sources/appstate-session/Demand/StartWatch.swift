import AppStateBus
import Desktop
import Glibc
import Linux
import Systemd

/// Reports that the program of a suspended application is started a second time: the second process waits for
/// the first, or assumes that it is dead.
///
/// The kernel reports by inotify(7) that the program's file is opened, by any process and for any purpose, or that
/// another one takes its place, as in an upgrade. The watch then checks whether another process of our user runs the
/// program. For a script the file is the script's, not its interpreter's. For an AppImage it is the image, which its
/// program mounts elsewhere at each start.
///
/// Files are examined on a separate thread: a suspended application may serve the file system that they are on.
final class StartWatch: Watcher {
    private let loop: EventLoop
    private let needed: (_ pid: Int32, _ other: Int32) -> Void
    private let worker: Worker
    private let inotify: Descriptor
    private var sources: [Source] = []
    private var timer: Timer?
    /// By the application's process.
    private var programs: [Int32: Program] = [:]
    /// The applications, by inotify's watch descriptor: several may run the same program.
    private var watches: [Int32: Set<Int32>] = [:]
    /// The applications whose files were opened or replaced since the checks began, and the number of checks since.
    private var touched: Set<Int32> = []
    private var step = delays.count

    /// What an application runs.
    fileprivate struct Program: Sendable {
        /// The application's process.
        let pid: Int32
        /// Where it is started. Nil: it was not examined yet.
        var paths: [String]?
        var isScript = false
        /// The files at these paths, also those that were there before.
        var files: Set<FileIdentity> = []
        /// inotify's watches of them.
        var watches: Set<Int32> = []
        /// The processes that ran it at the last check; nil: there was none.
        var processes: Set<Int32>?
        /// Those of them that were started since the check before.
        var started: Set<Int32> = []
    }

    /// The delays of the checks after the file was opened, in microseconds: at first the kernel has not yet
    /// replaced the program.
    private static let delays: [UInt64] = [20_000, 80_000, 320_000]

    /// - Parameter needed: gets the application's process, and the process that was started.
    init(loop: EventLoop, needed: @escaping (_ pid: Int32, _ other: Int32) -> Void) throws {
        self.loop = loop
        self.needed = needed
        let number = inotify_init1(Int32(IN_CLOEXEC) | Int32(IN_NONBLOCK))
        guard number >= 0 else {
            throw KernelFailure(operation: "watch", subject: "programs", errno: errno)
        }
        inotify = Descriptor(owning: number)
        worker = try Worker(name: "starts")
        sources = [
            try loop.watch(number) { [unowned self] _ in dispatch() },
            try loop.watch(worker.descriptor) { [worker] _ in worker.complete() },
        ]
        timer = try loop.timer { [unowned self] in
            check(touched) { [unowned self] in
                step += 1
                if step < Self.delays.count { arm() } else { touched = [] }
            }
        }
    }

    /// Watches the programs of applications that are suspended, or about to be.
    func follow(_ situation: Situation) {
        let resting = situation.applications.resting
        for pid in programs.keys where !resting.contains(pid) {
            programs[pid] = nil
            for watch in watches.keys {
                watches[watch]?.remove(pid)
                drop(watch)
            }
        }
        let new = resting.subtracting(programs.keys)
        for pid in new { programs[pid] = Program(pid: pid) }
        check(new)
    }

    /// Whether the files of all are watched.
    var isSettled: Bool { programs.values.allSatisfy { $0.processes != nil } }

    private func drop(_ watch: Int32) {
        guard watches[watch]?.isEmpty != false else { return }
        watches[watch] = nil
        inotify_rm_watch(inotify.rawValue, watch)
    }

    // MARK: Starts

    private func dispatch() {
        var buffer = [UInt8](repeating: 0, count: 4_096)
        var pids: Set<Int32> = []
        while true {
            let count = read(inotify.rawValue, &buffer, buffer.count)
            guard count > 0 else { break }
            buffer.withUnsafeBytes { bytes in
                // struct inotify_event: wd, mask, cookie, len. A file that is watched has no name.
                for place in stride(from: 0, to: count, by: 16) {
                    pids.formUnion(watches[bytes.loadUnaligned(fromByteOffset: place, as: Int32.self)] ?? [])
                }
            }
        }
        if pids.isEmpty { return }
        touched.formUnion(pids)
        // A file that is opened all the time is not checked all the time.
        if step < Self.delays.count {
            step = min(step, 1)
        } else {
            step = 0
            arm()
        }
    }

    private func arm() { timer?.arm(at: loop.now + Self.delays[step]) }

    private func check(_ pids: Set<Int32>, then next: @escaping () -> Void = {}) {
        let former = programs.filter { pids.contains($0.key) }
        if former.isEmpty { return next() }
        let number = inotify.rawValue
        worker.run {
            let programs = former.mapValues { $0.watched(by: number) }
            let running = Running(scripts: programs.values.contains(where: \.isScript))
            return programs.mapValues { $0.checked(running.of($0)) }
        } then: { [weak self] programs in
            self?.take(programs)
            next()
        }
    }

    private func take(_ found: [Int32: Program]) {
        for (pid, program) in found {
            let isWatched = programs[pid] != nil
            if isWatched { programs[pid] = program }
            for watch in program.watches {
                if isWatched { watches[watch, default: []].insert(pid) }
                drop(watch)
            }
            if isWatched { for other in program.started.sorted() { needed(pid, other) } }
        }
    }

    /// Our user's processes, and the programs that they run.
    private struct Running {
        private var programs: [FileIdentity: Set<Int32>] = [:]
        /// By their paths.
        private var scripts: [String: Set<Int32>] = [:]

        init(scripts isScripts: Bool) {
            for pid in (try? Proc().processes()) ?? [] {
                // The programs of other users' processes cannot be read.
                guard let file = FileIdentity("/proc/\(pid)/exe") else { continue }
                programs[file, default: []].insert(pid)
                guard isScripts else { continue }
                for path in Program.arguments(of: pid) { scripts[path, default: []].insert(pid) }
            }
        }

        func of(_ program: Program) -> Set<Int32> {
            let same =
                program.isScript
                ? scripts.filter { path, _ in
                    // Other files in arguments are not examined, because they may be on a file system that hangs.
                    program.paths?.first?.split(separator: "/").last == path.split(separator: "/").last
                        && FileIdentity(path).map(program.files.contains) == true
                }.map(\.value) : program.files.compactMap { programs[$0] }
            return same.reduce(into: []) { $0.formUnion($1) }
        }
    }
}

extension StartWatch.Program {
    /// The number of arguments among which a script's path is searched for: `#!/usr/bin/env -S python3 -u`.
    private static let mostArguments = 4

    /// Watches the files that start the program.
    fileprivate func watched(by inotify: Int32) -> Self {
        var program = self
        let paths = paths ?? program.find()
        program.paths = paths
        for path in paths {
            // It may be the file of a sandboxed program, which cannot be started through this path from outside.
            let watch = inotify_add_watch(inotify, path, UInt32(IN_OPEN | IN_ATTRIB | IN_MOVE_SELF))
            guard watch >= 0, let file = FileIdentity(path) else { continue }
            program.watches.insert(watch)
            program.files.insert(file)
        }
        return program
    }

    /// - Parameter present: the processes that run it now.
    fileprivate func checked(_ present: Set<Int32>) -> Self {
        var program = self
        // A process that another instance has started for itself needs no other process.
        program.started = present.subtracting(processes ?? present).filter { other in
            !Proc().lineage(of: other).dropFirst().contains { $0.pid == pid || present.contains($0.pid) }
        }
        program.processes = present
        return program
    }

    private mutating func find() -> [String] {
        let proc = Proc()
        let name = try? proc.program(of: pid)
        let isInterpreter = Interpreters.names.contains {
            name == $0 || name?.hasPrefix($0) == true && name?.last?.isNumber == true
        }
        let arguments = isInterpreter ? Self.arguments(of: pid) : []
        // The files on its mount are not examined: the application itself serves them.
        if let image = proc.appImage(of: pid, scripts: Array(arguments.prefix(1))) { return [image] }
        if isInterpreter {
            isScript = true
            // Without a script it is not known what it runs: `python3 -m module`, for example.
            return arguments.first(where: Self.beginsAsScript).map { [$0] } ?? []
        }
        let exe = "/proc/\(pid)/exe"
        guard let place = try? proc.formerExecutable(of: pid),
            (try? proc.isReplaced(pid)) == true || FileIdentity(place) == FileIdentity(exe)
        else {
            // A sandboxed program has its place in the sandbox.
            return [exe]
        }
        return [exe, place]
    }

    /// Absolute paths among its first arguments.
    fileprivate static func arguments(of pid: Int32) -> [String] {
        guard let text = try? TextFile.read("/proc/\(pid)/cmdline") else { return [] }
        return text.split(separator: "\0", omittingEmptySubsequences: false).dropFirst().prefix(mostArguments)
            .filter { $0.hasPrefix("/") }.map(String.init)
    }

    /// Only a regular file is opened, because opening a FIFO or a device may have side effects.
    private static func beginsAsScript(_ path: String) -> Bool {
        var status = stat()
        guard stat(path, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return false }
        let number = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard number >= 0 else { return false }
        defer { close(number) }
        var bytes: [UInt8] = [0, 0]
        return read(number, &bytes, 2) == 2 && bytes == Array("#!".utf8)
    }
}
