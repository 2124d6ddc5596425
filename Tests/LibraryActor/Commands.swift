import AppState
import Dispatch
import Glibc

/// Carries out a test's commands, line by line from standard input. The program ends with its input.
@MainActor
final class Commands {
    private unowned let actor: Actor
    private let source: any DispatchSourceRead
    private var unread: [UInt8] = []
    private var waiting: [String: CheckedContinuation<Void, Never>] = [:]
    private var progress: [String: TaskProgress] = [:]
    private var allocations: [[UInt8]] = []
    private var observers: [Task<Void, Never>] = []

    init(_ actor: Actor) {
        self.actor = actor
        source = DispatchSource.makeReadSource(fileDescriptor: STDIN_FILENO, queue: .main)
        source.setEventHandler { MainActor.assumeIsolated { self.read() } }
        source.resume()
    }

    /// Blocks the thread.
    func waitForLine() {
        var byte: UInt8 = 0
        while Glibc.read(STDIN_FILENO, &byte, 1) == 1, byte != UInt8(ascii: "\n") {}
    }

    private func read() {
        // `waitForLine` may have taken the input that the event announces.
        var ready = pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0)
        guard poll(&ready, 1, 0) == 1 else { return }
        var buffer = [UInt8](repeating: 0, count: 4_096)
        let count = Glibc.read(STDIN_FILENO, &buffer, buffer.count)
        guard count > 0 else { exit(0) }
        unread += buffer.prefix(count)
        while let end = unread.firstIndex(of: UInt8(ascii: "\n")) {
            let words = String(decoding: unread[..<end], as: UTF8.self).split(separator: " ").map(String.init)
            unread.removeFirst(end + 1)
            Task { say("answer " + (await self.perform(words))) }
        }
    }

    private func perform(_ words: [String]) async -> String {
        let application = Application.shared
        let word = words.count > 1 ? words[1] : ""
        switch words.first {
        case "state": return application.state.rawValue
        case "managed": return "\(application.isManaged)"
        case "text":
            actor.text = word
            actor.places = [.init(line: 7, column: nil), .init(line: -1, column: 3)]
        case "bytes": actor.bytes = [UInt8](repeating: 9, count: Int(word) ?? 0)
        case "allocate": allocations.append([UInt8](repeating: 9, count: (Int(word) ?? 0) << 20))
        case "unsaved": application.hasUnsavedChanges = word == "true"
        case "activity":
            let note = words.count > 2 ? words[2] : "x"
            application.userActivity =
                word == "-" ? nil : UserActivity(type: word, info: ["note": .string(note)])
        case "download":
            let transfers = BackgroundTransferSession.shared
            let parts = word.split(separator: "=", maxSplits: 1).map(String.init)
            do {
                let transfer = try await transfers.download(from: parts[1], to: parts[0])
                return "\(transfer.id) \(try await transfers.transfers().count)"
            } catch {
                return error.name ?? "none"
            }
        case "remaining":
            let remaining = await application.backgroundTimeRemaining
            return remaining.map { $0 > .zero ? "some" : "none" } ?? "unlimited"
        case "block": actor.blocks = true
        case "linger": actor.lingers = true
        case "depart": actor.depart()
        case "child": return child()
        case "begin": begin(word)
        case "finish": waiting.removeValue(forKey: word)?.resume()
        case "export": export(word)
        case "progress": progress[word]?.completed = words.count > 2 ? UInt64(words[2]) ?? 0 : 0
        case "schedule":
            // The rest of the command: a number of seconds, `network` or `power`.
            let type = words.count > 2 ? words[2] : ""
            let kinds: [String: ScheduledLaunch.Trigger] = ["network": .network, "power": .power]
            let kind = kinds[type] ?? .after(.seconds(Int(type) ?? 0))
            return await outcome { () async throws(ApplicationError) in
                try await application.scheduleLaunch(named: word, kind)
            }
        case "cancel":
            return await outcome { () async throws(ApplicationError) in
                try await application.cancelLaunch(named: word)
            }
        case "observe": observe(word)
        case "forget":
            for observer in observers { observer.cancel() }
            for observer in observers { await observer.value }
            observers = []
        case "send":
            return await outcome { () async throws(ApplicationError) in
                try await application.send("greet", ["word": "hello"], to: word)
            }
        case "protected": return "\(application.isProtectedDataAvailable)"
        case "inhibit": inhibit(word)
        case "activate":
            return await outcome { () async throws(ApplicationError) in
                try await application.activate(word)
            }
        case "open":
            return await outcome { () async throws(ApplicationError) in
                try await application.open(["file:///tmp/a"], with: word)
            }
        case "save":
            do {
                try await application.saveState()
                return "ok"
            } catch {
                return (error as? ApplicationError).map { $0.name ?? "alone" } ?? "\(error)"
            }
        case "scenes", "scene", "write", "note", "window", "close", "front":
            return Part.perform(words[0], Array(words.dropFirst()))
        case "terminate": application.terminate(status: Int32(word) ?? 0)
        default: return "unknown"
        }
        return "ok"
    }

    private func outcome(_ body: () async throws(ApplicationError) -> Void) async -> String {
        do throws(ApplicationError) {
            try await body()
            return "ok"
        } catch {
            return error.name ?? "alone"
        }
    }

    /// The signals that a child program begins with: those that it blocks, and those that it ignores.
    private func child() -> String {
        guard let pipe = popen("grep -E '^Sig(Blk|Ign)' /proc/self/status", "r") else { return "no child" }
        defer { pclose(pipe) }
        var text = ""
        while case let character = fgetc(pipe), character != EOF {
            text.unicodeScalars.append(Unicode.Scalar(UInt8(truncatingIfNeeded: character)))
        }
        return text.split(whereSeparator: \.isWhitespace).joined(separator: " ")
    }

    /// A background task that ends by `finish` or when it is cancelled.
    private func begin(_ name: String) {
        Task { await Application.shared.withBackgroundTask(named: name) { await self.work(name) } }
    }

    /// The same, and `progress NAME N` tells its progress.
    private func export(_ name: String) {
        Task {
            await Application.shared.withContinuedTask(named: name, title: "Exporting", total: 10) {
                self.progress[name] = $0
                await self.work(name)
            }
        }
    }

    /// Keeps an application from being suspended, until `finish`.
    private func inhibit(_ id: String) {
        Task {
            await Application.shared.withSuspensionInhibited(of: id, why: "a test") {
                await withCheckedContinuation { self.waiting[id] = $0 }
            }
        }
    }

    private func work(_ name: String) async {
        say("task \(name) begun")
        await withTaskCancellationHandler {
            await withCheckedContinuation { self.waiting[name] = $0 }
        } onCancel: {
            Task { @MainActor in self.waiting.removeValue(forKey: name)?.resume() }
        }
        say("task \(name) \(Task.isCancelled ? "cancelled" : "finished")")
    }

    private func observe(_ name: String) {
        let notifications = Application.shared.notifications
        observers.append(
            Task {
                for await notification in notifications { say("observed \(name) \(notification)") }
            })
    }
}
