import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// The whole cycle: opened by its desktop entry, suspended, reclaimed, and opened again with the state that it had
/// saved.
@Suite(
    "Reclaimed and opened again", .enabled(if: Theatre.isAvailable, Theatre.whatIsMissing),
    .enabled(if: Screen.isAvailable, Screen.whatIsMissing),
    .enabled(if: MemoryLimit.isAvailable, Comment(rawValue: MemoryLimit.whatIsMissing)),
    .enabled(if: Programs.built("appstatectl") != nil, "needs appstatectl built beside the tests"),
    .enabled(if: access("/proc/pressure/memory", W_OK) == 0, "needs PSI"))
struct RelaunchTests {
    /// With APPSTATED_SOAK=1 a hundred rounds.
    private static let rounds = ProcessInfo.processInfo.environment["APPSTATED_SOAK"] == "1" ? 100 : 3

    /// The callbacks that the application recorded, line by line.
    private struct Record {
        let file: String

        var lines: [String] {
            ((try? String(contentsOfFile: file, encoding: .utf8)) ?? "").split(separator: "\n").map(
                String.init)
        }
    }

    /// A desktop with LibraryActor's entry, and a daemon that watches a cgroup of 200 MiB.
    private struct Stage {
        let limit: MemoryLimit
        let theatre: Theatre
        let record: Record
        let screen: Screen
        /// A file larger than what is left of the cgroup, and not in the page cache.
        let file: String
        /// The environment of programs that open something on this desktop.
        let environment: [String: String?]

        /// - Parameters:
        ///   - grace: BackgroundGraceSec.
        ///   - available: CriticalAvailable.
        ///   - rules: the user's session.conf.
        ///   - options: those of the application.
        init(grace: String, available: String, rules: String = "", options: String = "") throws {
            limit = try MemoryLimit(bytes: 200 << 20)
            theatre = try Theatre(
                grace: grace,
                pressure: """
                    Source=\(limit.own.cgroup.directory)/memory.pressure
                    Warning=some 2ms 2s
                    Critical=full 2s 2s
                    CriticalAvailable=\(available)
                    """)
            record = Record(file: theatre.bus.directory + "/record")
            let data = theatre.bus.directory + "/data"
            try RelaunchTests.writeEntry(in: data, record, options)
            try FileManager.default.createDirectory(
                atPath: data + "/appstated", withIntermediateDirectories: true)
            try rules.write(toFile: data + "/appstated/session.conf", atomically: true, encoding: .utf8)
            let directories = [
                "XDG_DATA_HOME": data, "XDG_DATA_DIRS": "/nonexistent", "XDG_CONFIG_HOME": data,
            ]
            screen = try Screen(theatre, environment: directories)
            file = theatre.bus.directory + "/large"
            try RelaunchTests.write(mebibytes: 200, to: file)
            environment = theatre.bus.environment.merging(directories) { $1 }
        }

        /// Runs `appstatectl open`; returns the application's object, or nil if it has failed.
        func open(_ url: String, _ options: String...) throws -> String? {
            let command = try Child(
                Programs.built("appstatectl") ?? "appstatectl", ["open"] + options + [url],
                environment: environment)
            guard try command.waitForExit() == .exited(0) else { return nil }
            return command.output.split(separator: "\n").last.map(String.init)
        }

        /// Kills the daemon within the next 1.5 s.
        func killer() throws -> Child {
            let pause = Double.random(in: 0...1.5)
            return try Child("sh", ["-c", "sleep \(pause); kill -KILL \(theatre.daemon.pid)"])
        }

        /// Suspends an application, and lets memory run short until it is reclaimed. Meanwhile the killer comes.
        func reclaim(_ path: String, _ what: String, _ killer: Child) throws {
            let pid = try RelaunchTests.steadily(theatre, "the process of \(path)") {
                try theatre.pid(of: path)
            }
            try limit.take(pid)
            // Memory is so short that the application is ended as soon as it is suspended.
            func isSuspended() throws -> Bool? {
                do {
                    try theatre.setMinimized(pid, true)
                    return try theatre.state(of: path) == "suspended" ? true : nil
                } catch let failure as BusFailure where RelaunchTests.gone.contains(failure.name ?? "") {
                    return false
                }
            }
            try RelaunchTests.steadily(theatre, "\(what): \(path) to be suspended", isSuspended)
            _ = try killer.waitForExit()
            // The daemon must know the application as suspended before it can reclaim it.
            guard try RelaunchTests.steadily(theatre, "the next daemon", isSuspended) else { return }
            let reader = try RelaunchTests.started("while cat \(file) >/dev/null; do :; done", in: limit)
            try theatre.waitForRemoval(of: path)
            reader.kill(SIGKILL)
            _ = try reader.waitForExit()
        }
    }

    @Test("the text is restored in each round, whenever the daemon is killed")
    func restored() throws {
        // A new daemon lets the application run until the session agent reports again; then it gets its own grace
        // period.
        let stage = try Stage(grace: "5", available: "200M")
        let (limit, theatre, record) = (stage.limit, stage.theatre, stage.record)
        // The program keeps what it reads until the end of its input.
        let hog = try Self.started("(head -c 110M /dev/zero; exec sleep infinity) | tail -c 110M", in: limit)
        defer { hog.kill(SIGKILL) }
        var expected = ""
        for round in 1...Self.rounds {
            let killer = try stage.killer()
            let url = "note:\(round)"
            let path = try Self.steadily(theatre, "round \(round): appstatectl open") { try stage.open(url) }
            let before = expected
            expected += (expected.isEmpty ? "" : "+") + url
            try Self.steadily(theatre, "round \(round): the text \(expected) in \(record.lines.suffix(8))") {
                () throws -> Bool? in
                record.lines.last { $0.hasPrefix("text ") } == "text \(expected)" ? true : nil
            }
            if round > 1 {
                #expect(record.lines.last { $0.hasPrefix("told didDecode") }?.contains(" \(before) ") == true)
            }
            try stage.reclaim(path, "round \(round)", killer)
        }
        let launches = record.lines.filter { $0.hasPrefix("told willFinishLaunching") }
        #expect(launches.count == Self.rounds)
        let others = launches.dropFirst().filter { !$0.contains("exit:reclaimed restorable:true") }
        #expect(others == [])
        withExtendedLifetime(stage) {}
    }

    @Test(
        "three scenes are reclaimed and come back in order, each with its text, whenever the daemon is killed"
    )
    func scenes() throws {
        let stage = try Stage(grace: "5", available: "200M", options: "--scenes")
        let (limit, theatre, record) = (stage.limit, stage.theatre, stage.record)
        let hog = try Self.started("(head -c 110M /dev/zero; exec sleep infinity) | tail -c 110M", in: limit)
        defer { hog.kill(SIGKILL) }
        /// Opens a URL in a scene, and waits until it has it.
        func write(_ url: String, in scene: String) throws -> String {
            let path = try Self.steadily(theatre, "\(url) to be opened") {
                // A call that was not answered may have been carried out.
                if record.lines.contains(where: { $0.hasPrefix("text ") && $0.hasSuffix(url) }) {
                    return try theatre.path(ofID: "org.example.LibraryActor")
                }
                return try stage.open(url, "--scene", scene)
            }
            try Self.steadily(theatre, "\(url) in \(record.lines.suffix(8))") { () throws -> Bool? in
                record.lines.contains { $0.hasPrefix("text ") && $0.hasSuffix(url) } ? true : nil
            }
            return path
        }
        let rounds = Self.rounds == 3 ? 3 : 50
        var texts: [(id: String, text: String)] = []
        for round in 1...rounds {
            // A call for a new scene must not be repeated, so the first kill comes after these.
            var killer = round == 1 ? nil : try stage.killer()
            var path = ""
            let begin = record.lines.count
            for number in 0..<3 {
                let url = "note:\(round).\(number)"
                path = try write(url, in: round == 1 ? LaunchKey.newScene : texts[number].id)
                guard round > 1 else {
                    let line = try #require(record.lines.last { $0.hasPrefix("text ") && $0.hasSuffix(url) })
                    texts.append((String(line.split(separator: " ")[1]), url))
                    continue
                }
                if number == 0 {
                    // As it was launched, before anything was added.
                    let told = record.lines[begin...].filter { $0.hasPrefix("told sceneRestore ") }
                    #expect(
                        told == texts.map { "told sceneRestore not-running \($0.id) unattached \($0.text)" })
                }
                texts[number].text += "+" + url
            }
            killer = try killer ?? stage.killer()
            try stage.reclaim(path, "round \(round)", try #require(killer))
        }
        let launches = record.lines.filter { $0.hasPrefix("told willFinishLaunching") }
        #expect(launches.count == rounds)
        #expect(launches.dropFirst().filter { !$0.contains("exit:reclaimed restorable:true") } == [])
        #expect(record.lines.count { $0.hasPrefix("told sceneWillConnect") } == 3 * rounds)
        withExtendedLifetime(stage) {}
    }

    @Test("RelaunchReclaimed= starts the application again in the background once memory is available")
    func relaunched() throws {
        let stage = try Stage(
            grace: "100ms", available: "60M",
            rules: "[Application org.example.LibraryActor]\nRelaunchReclaimed=yes\n")
        let (limit, theatre, record) = (stage.limit, stage.theatre, stage.record)
        let path = try Self.steadily(theatre, "appstatectl open") { try stage.open("note:1") }
        try theatre.wait("its text") { record.lines.contains("text note:1") }
        let pid = try theatre.pid(of: path)
        try limit.take(pid)
        try theatre.setMinimized(pid, true)
        try theatre.wait(for: path, toBe: "suspended")

        // 60 MiB of the 200 are to stay available.
        let hog = try Player(nil)
        try limit.take(hog.pid)
        try hog.ask("allocate 150")
        let reader = try Self.started("while cat \(stage.file) >/dev/null; do :; done", in: limit)
        try theatre.waitForRemoval(of: path)
        #expect(record.lines.count { $0.hasPrefix("told willFinishLaunching") } == 1)
        for taker in [reader, hog.process] {
            taker.kill(SIGKILL)
            _ = try taker.waitForExit()
        }

        try theatre.wait("the second launch") {
            record.lines.contains { $0.hasPrefix("told didDecode") && $0.contains(" note:1 ") }
        }
        #expect(
            record.lines.filter { $0.hasPrefix("told willFinishLaunching") } == [
                "told willFinishLaunching not-running first:true exit:- restorable:false",
                "told willFinishLaunching not-running first:false exit:reclaimed restorable:true",
            ])
        let next = try theatre.path(ofID: "org.example.LibraryActor")
        #expect(try theatre.pid(of: next) != pid)
        guard case .dictionary(let options) = try theatre.property("LaunchOptions", of: next) else {
            throw TestFailure("no launch options")
        }
        #expect(options["reason"] == .string("restore"))
        #expect(options["exit-reason"] == .string("reclaimed"))
        try theatre.wait(for: next, toBe: "suspended")
        #expect(!record.lines.contains { $0.hasPrefix("told didBecomeActive") })
        withExtendedLifetime(stage) {}
    }

    fileprivate static let gone = [ErrorName.noSuchApplication.rawValue, ErrorName.noSuchProcess.rawValue]

    /// A shell that is in the cgroup before its first command.
    fileprivate static func started(_ command: String, in limit: MemoryLimit) throws -> Child {
        let shell = try Child("sh", ["-c", "kill -STOP $$; \(command)"])
        var info = siginfo_t()
        while waitid(P_PID, id_t(shell.pid), &info, WSTOPPED | WNOWAIT) < 0, errno == EINTR {}
        try limit.take(shell.pid)
        shell.kill(SIGCONT)
        return shell
    }

    /// Tries until it succeeds. Where the daemon was killed, it starts another one first.
    @discardableResult
    fileprivate static func steadily<Value>(
        _ theatre: Theatre, _ what: @autoclosure () -> String, _ body: () throws -> Value?
    ) throws -> Value {
        var value: Value?
        let done = try eventually {
            if theatre.daemon.advance() != nil { try theatre.startDaemon() }
            do {
                value = try body()
            } catch is BusFailure {
                // The daemon was killed during the call.
            }
            return value != nil
        }
        guard done, let value else {
            throw TestFailure("timed out waiting for \(what())\n\(theatre.daemon.errors)")
        }
        return value
    }

    private static func writeEntry(in data: String, _ record: Record, _ options: String) throws {
        try FileManager.default.createDirectory(
            atPath: data + "/applications", withIntermediateDirectories: true)
        try """
        [Desktop Entry]
        Type=Application
        Name=Library Actor
        Exec="\(Programs.built("LibraryActor") ?? "LibraryActor")" --record "\(record.file)" \(options) %U
        MimeType=x-scheme-handler/note;

        """.write(
            toFile: data + "/applications/org.example.LibraryActor.desktop", atomically: true, encoding: .utf8
        )
        try "[MIME Cache]\nx-scheme-handler/note=org.example.LibraryActor.desktop;\n".write(
            toFile: data + "/applications/mimeinfo.cache", atomically: true, encoding: .utf8)
    }

    private static func write(mebibytes: Int, to file: String) throws {
        let descriptor = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        defer { close(descriptor) }
        let block = [UInt8](repeating: 7, count: 1 << 20)
        for _ in 0..<mebibytes { _ = Glibc.write(descriptor, block, block.count) }
        fsync(descriptor)
        posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED)
    }
}
