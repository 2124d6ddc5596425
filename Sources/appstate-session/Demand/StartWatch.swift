import AppStateBus
import Desktop
import Glibc
import Linux
import Systemd

/// Reports that the program of a suspended application is started a second time: the second process waits for
/// the first, or assumes that it is dead.
///
/// The kernel reports by inotify(7) that the program's file is opened, by any process and for any purpose.
/// The watch then checks whether another process of our user runs the program. For a script the file is the
/// script's, not its interpreter's. For an AppImage it is the image, which its program mounts elsewhere at each start.
/// If another file takes the place of the file, as in an upgrade, a second start runs that one: both are watched.
final class StartWatch: Watcher {
    private let loop: EventLoop
    private let journal: Journal
    private let needed: (_ pid: Int32, _ other: Int32) -> Void
    private let proc = Proc()
    private let inotify: Descriptor
    private var source: Source?
    private var timer: Timer?
    /// By inotify's watch descriptor, because several applications may run the same program.
    private var programs: [Int32: Program] = [:]
    /// The directories of the files, by inotify's watch descriptor.
    private var directories: [Int32: Directory] = [:]
    /// The watches whose file was opened.
    private var opened: [Int32: Opening] = [:]
    /// The next check does not come before this time.
    private var nextLook: UInt64 = 0

    private struct Program {
        let file: FileIdentity
        /// Its path, if it is a script.
        let script: String?
        var pids: Set<Int32> = []
        /// The processes that ran it at the last check.
        var known: Set<Int32> = []
        /// It has taken the place of a program that still runs.
        var isReplacement = false
    }

    private struct Directory {
        let path: String
        /// The applications, by the name of the file that starts them.
        var names: [String: Set<Int32>] = [:]
    }

    /// The delays of the checks after the file was opened, in microseconds: at first the kernel has not yet
    /// replaced the program.
    private static let looks: [UInt64] = [1_000, 5_000, 20_000, 80_000, 320_000]
    /// The number of arguments among which a script's path is searched for: `#!/usr/bin/env -S python3 -u`.
    private static let mostArguments = 4

    /// - Parameter needed: gets the application's process, and the process that was started.
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

    func follow(_ situation: Situation) { watch(situation.applications.resting) }

    /// Watches the programs of applications that are suspended, or about to be, each known by its main process.
    func watch(_ resting: Set<Int32>) {
        for (watch, program) in programs {
            programs[watch]?.pids.formIntersection(resting)
            guard program.pids.isDisjoint(with: resting) else { continue }
            programs[watch] = nil
            opened[watch] = nil
            inotify_rm_watch(inotify.rawValue, watch)
        }
        for (watch, directory) in directories {
            let left = directory.names.mapValues { $0.intersection(resting) }.filter { !$0.value.isEmpty }
            directories[watch] = left.isEmpty ? nil : Directory(path: directory.path, names: left)
            if left.isEmpty { inotify_rm_watch(inotify.rawValue, watch) }
        }
        let new = resting.subtracting(programs.values.flatMap(\.pids))
        let added = Set(new.flatMap(add))
        guard !added.isEmpty else { return }
        let running = Running(proc, scripts: added.contains { programs[$0]?.script != nil })
        for watch in added {
            if let program = programs[watch] { programs[watch]?.known = running.of(program) }
        }
    }

    /// - Returns: the watches for its program; empty: nothing is watched.
    private func add(_ pid: Int32) -> [Int32] {
        // A suspended application may serve the file system of a place: nothing on it is examined.
        let mounts = MountTable(proc)
        let name = try? proc.program(of: pid)
        let isInterpreter = Interpreters.names.contains {
            name == $0 || name?.hasPrefix($0) == true && name?.last?.isNumber == true
        }
        let scripts = isInterpreter ? Array(Self.arguments(of: pid).prefix(1)) : []
        if let image = proc.appImage(of: pid, scripts: scripts) {
            // The files on its mount are not examined: the application itself serves them.
            guard let file = mounts.resolve(image) else { return [] }
            watchPlaces([image, file], of: pid)
            return [watch(file, script: nil, pid)].compactMap(\.self)
        }
        if isInterpreter {
            // For other programs, no file in the arguments is examined, because its file system may hang.
            // Without a script it is not known what it runs: `python3 -m module`, for example.
            guard let (script, file) = self.script(of: pid, mounts) else { return [] }
            watchPlaces([script, file], of: pid)
            return [watch(file, script: script, pid)].compactMap(\.self)
        }
        let link = "/proc/\(pid)/exe"
        guard let place = try? proc.formerExecutable(of: pid), !mounts.mayHang(place) else { return [] }
        var watches = [watch(link, script: nil, pid)]
        if let file = mounts.resolve(place) {
            let isReplaced = (try? proc.isReplaced(pid)) == true
            // A sandboxed program has its place in the sandbox.
            if isReplaced || FileIdentity(file) == FileIdentity(link) { watchPlaces([place], of: pid) }
            if isReplaced { watches.append(watch(file, script: nil, pid, isReplacement: true)) }
        }
        return watches.compactMap(\.self)
    }

    /// Watches a file that starts the program.
    ///
    /// - Returns: nil: it is not watched.
    private func watch(
        _ path: String, script: String?, _ pid: Int32, isReplacement: Bool = false
    ) -> Int32? {
        let watch = inotify_add_watch(inotify.rawValue, path, UInt32(IN_OPEN))
        guard watch >= 0, let file = FileIdentity(path) else {
            // For example that of a sandboxed program, which cannot be started through this file from
            // outside.
            journal.log(.debug, "\(path): \(String(cString: strerror(errno)))")
            return nil
        }
        let new = Program(file: file, script: script, isReplacement: isReplacement)
        programs[watch, default: new].pids.insert(pid)
        return watch
    }

    /// Notices when another file takes the place of one of these: a file, or a symbolic link to it.
    private func watchPlaces(_ paths: Set<String>, of pid: Int32) {
        for path in paths { watchPlace(path, of: pid) }
    }

    private func watchPlace(_ path: String, of pid: Int32) {
        guard let slash = path.lastIndex(of: "/"), slash > path.startIndex else { return }
        let directory = String(path[..<slash])
        let events = UInt32(IN_CREATE) | UInt32(IN_MOVED_TO) | UInt32(IN_ONLYDIR)
        let watch = inotify_add_watch(inotify.rawValue, directory, events)
        guard watch >= 0 else {
            return journal.log(.debug, "\(directory): \(String(cString: strerror(errno)))")
        }
        let name = String(path[path.index(after: slash)...])
        directories[watch, default: Directory(path: directory)].names[name, default: []].insert(pid)
    }

    /// Another file has the name of a program.
    private func replaced(_ path: String, _ pids: Set<Int32>) {
        // A file system may have been mounted there since, or the new file may be a symbolic link.
        guard let file = MountTable(proc).resolve(path) else { return }
        for pid in pids.sorted() {
            // Its arguments name the script, which may be a symbolic link to the file.
            let script = programs.values.first { $0.script != nil && $0.pids.contains(pid) }?.script
            let before = Set(programs.keys)
            guard let watch = watch(file, script: script, pid, isReplacement: true), !before.contains(watch),
                let program = programs[watch]
            else { continue }
            // The arguments of the processes that run the former script name the new one as well.
            if script != nil { programs[watch]?.known = Running(proc, scripts: true).of(program) }
            // It may have been started already.
            note(watch)
            for other in before where programs[other]?.isReplacement == true { drop(pid, from: other) }
        }
    }

    /// Nothing can start this file any more: it has no name.
    private func drop(_ pid: Int32, from watch: Int32) {
        programs[watch]?.pids.remove(pid)
        guard programs[watch]?.pids.isEmpty == true else { return }
        programs[watch] = nil
        opened[watch] = nil
        inotify_rm_watch(inotify.rawValue, watch)
    }

    /// The script that an interpreter runs: the kernel puts its path after the interpreter's own arguments (execve(2),
    /// "Interpreter scripts").
    ///
    /// - Returns: also the script without symbolic links; nil: it has none, or one whose file system may hang.
    private func script(of pid: Int32, _ mounts: MountTable) -> (path: String, file: String)? {
        for path in Self.arguments(of: pid) {
            if mounts.mayHang(path) { return nil }
            if let file = mounts.resolve(path), Self.beginsAsScript(file) { return (path, file) }
        }
        return nil
    }

    /// Absolute paths among its first arguments.
    private static func arguments(of pid: Int32) -> [String] {
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

    // MARK: Starts

    private func dispatch() {
        var buffer = [UInt8](repeating: 0, count: 4_096)
        var moved: [String: Set<Int32>] = [:]
        while true {
            let count = read(inotify.rawValue, &buffer, buffer.count)
            guard count > 0 else { break }
            buffer.withUnsafeBytes { bytes in
                var place = 0
                // struct inotify_event: wd, mask, cookie, len, and a name of that length.
                while place + 16 <= count {
                    let watch = bytes.loadUnaligned(fromByteOffset: place, as: Int32.self)
                    let mask = bytes.loadUnaligned(fromByteOffset: place + 4, as: UInt32.self)
                    let length = bytes.loadUnaligned(fromByteOffset: place + 12, as: UInt32.self)
                    if mask & UInt32(IN_OPEN) != 0, programs[watch] != nil { note(watch) }
                    if let directory = directories[watch] {
                        let bytes = bytes[(place + 16)...].prefix(Int(length)).prefix { $0 != 0 }
                        let name = String(decoding: bytes, as: UTF8.self)
                        if let pids = directory.names[name] { moved["\(directory.path)/\(name)"] = pids }
                    }
                    place += 16 + Int(length)
                }
            }
        }
        for (path, pids) in moved { replaced(path, pids) }
        arm()
    }

    private func note(_ watch: Int32) {
        if opened[watch] == nil {
            opened[watch] = Opening(due: loop.now + Self.looks[0])
        } else {
            // A file that is opened all the time is not checked all the time.
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
        // One walk for all checks that are due.
        let running = Running(proc, scripts: due.keys.contains { programs[$0]?.script != nil })
        for (watch, opening) in due {
            guard let program = programs[watch] else {
                opened[watch] = nil
                continue
            }
            let present = running.of(program)
            let new = present.subtracting(program.known).filter { pid in
                // A process that another instance has started for itself needs no other process.
                !proc.lineage(of: pid).dropFirst().contains {
                    present.contains($0.pid) || program.pids.contains($0.pid)
                }
            }
            programs[watch]?.known = present
            for other in new.sorted() { for pid in program.pids { needed(pid, other) } }
            opened[watch] = opening.next(after: begin)
        }
        // If programs are opened all the time, the checks take at most a tenth of a processor.
        let end = Clock.monotonicMicroseconds
        nextLook = end + 9 * (end - min(begin, end))
        arm()
    }

    /// A file that was opened, and the checks that are due because of this.
    private struct Opening {
        var due: UInt64
        var count = 0
        /// It was opened again since.
        var isRepeated = false

        /// The next check; nil: there is none. The checks continue even if a process was found, because the
        /// kernel may report two opens as one event.
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

    /// Our user's processes, and the programs that they run.
    private struct Running {
        private var programs: [FileIdentity: Set<Int32>] = [:]
        /// By their paths.
        private var scripts: [String: Set<Int32>] = [:]
        private let mounts: MountTable?

        init(_ proc: Proc, scripts isScripts: Bool) {
            mounts = isScripts ? MountTable(proc) : nil
            for pid in (try? proc.processes()) ?? [] {
                // The programs of other users' processes cannot be read.
                guard let file = FileIdentity("/proc/\(pid)/exe") else { continue }
                programs[file, default: []].insert(pid)
                guard isScripts else { continue }
                for path in StartWatch.arguments(of: pid) { scripts[path, default: []].insert(pid) }
            }
        }

        func of(_ program: Program) -> Set<Int32> {
            guard let script = program.script else { return programs[program.file] ?? [] }
            // Other files in arguments are not examined, because they may be on a file system that hangs.
            let name = script.split(separator: "/").last
            let same = scripts.filter { path, _ in
                path.split(separator: "/").last == name
                    && mounts?.resolve(path).flatMap { FileIdentity($0) } == program.file
            }
            return same.values.reduce(into: []) { $0.formUnion($1) }
        }
    }
}
