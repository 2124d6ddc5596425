import AppStateBus
import AppStateContract
import Glibc
import Linux

/// One connection and the commands that it carries out.
final class Application {
    private let loop: EventLoop
    private let bus: Bus
    private var filter: Slot?
    private var input: Source?
    private var unread: [UInt8] = []
    /// Commands that were read but not carried out yet.
    private var lines: [String] = []
    /// The descendant that acts in this process's place.
    private var successor: Application?
    /// Calls whose answers may still come.
    private var calls: [Slot] = []
    private var lockedFile: Int32 = -1
    private var allocations: [(UnsafeMutableRawPointer, Int)] = []

    init() throws {
        loop = try EventLoop()
        bus = try Bus.system()
        try bus.attach(to: loop)
        filter = try bus.addFilter { message in
            if message.isSignal, message.interface != "org.freedesktop.DBus" { Self.tell(message) }
            return false
        }
        input = try loop.watch(STDIN_FILENO) { [unowned self] _ in read() }
    }

    func run() throws {
        while true {
            try loop.runOnce(timeout: nil)
            // Not from within a handler: a command may run the loop itself.
            while !lines.isEmpty { obey(lines.removeFirst()) }
        }
    }

    private func read() {
        var buffer = [UInt8](repeating: 0, count: 4_096)
        let count = Glibc.read(STDIN_FILENO, &buffer, buffer.count)
        guard count > 0 else { exit(0) }
        unread += buffer.prefix(count)
        while let end = unread.firstIndex(of: UInt8(ascii: "\n")) {
            lines.append(String(decoding: unread[..<end], as: UTF8.self))
            unread.removeFirst(end + 1)
        }
    }

    private func obey(_ line: String) {
        var words = line.split(separator: " ").map(String.init)[...]
        guard let number = words.popFirst(), let command = words.popFirst() else { return }
        do {
            let answer = try perform(command, Array(words), number)
            say((["#\(number)", "ok"] + answer).joined(separator: " "))
        } catch let failure as BusFailure {
            say("#\(number) error \(failure.name ?? failure.description)")
        } catch {
            say("#\(number) error \(error)")
        }
    }

    private func perform(_ command: String, _ words: [String], _ number: String) throws -> [String] {
        switch command {
        case "name": return [bus.uniqueName]
        case "call": return try call(words)
        case "property": return [try property(words)]
        case "begin":
            try begin(words, number)
            return []
        case "settle":
            // The daemon answers in order, so what it sent before has arrived when it answers.
            _ = try call([BusNames.root, "org.freedesktop.DBus.Peer", "Ping"])
            while try loop.runOnce(timeout: 0) {}
            return []
        case "ignore":
            for word in words { signal(Int32(word) ?? 0, SIG_IGN) }
            return []
        case "setuid":
            guard let user = words.first.flatMap(UInt32.init), setuid(user) == 0 else {
                throw BusFailure(operation: "set", subject: "the user", errno: errno)
            }
            return []
        case "lock":
            // It stays locked until `unlock` or the end.
            lockedFile = open(words.first ?? "", O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
            guard lockedFile >= 0, flock(lockedFile, LOCK_EX) == 0 else {
                throw BusFailure(operation: "lock", subject: words.first ?? "", errno: errno)
            }
            return []
        case "allocate":
            // Mebibytes, each page written to.
            let size = (words.first.flatMap(Int.init) ?? 0) << 20
            let memory = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
            guard let memory, memory != MAP_FAILED else {
                throw BusFailure(operation: "allocate", subject: "\(size) bytes", errno: errno)
            }
            memset(memory, 1, size)
            allocations.append((memory, size))
            return []
        case "release":
            for (memory, size) in allocations { munmap(memory, size) }
            allocations = []
            return []
        case "read":
            // Reads a file again and again, for ever.
            let file = open(words.first ?? "", O_RDONLY | O_CLOEXEC)
            var block = [UInt8](repeating: 0, count: 1 << 20)
            while pread(file, &block, block.count, 0) > 0 {
                var offset = 0
                while case let count = pread(file, &block, block.count, offset), count > 0 { offset += count }
            }
            throw BusFailure(operation: "read", subject: words.first ?? "", errno: errno)
        case "unlock":
            close(lockedFile)
            return []
        case "fork": return [String(try Descent.fork())]
        case "spawn":
            // This is answered once the FIFO has a writer.
            try Descent.spawn(readingFrom: words.first ?? "")
            return ["spawned"]
        case "descend":
            guard let child = try Descent.handOver() else {
                let successor = try Application()
                self.successor = successor
                say("#\(number) ok \(getpid())")
                try successor.run()
                return []
            }
            Descent.waitForTheEnd(after: child)
        case "exec":
            say("#\(number) ok")
            try Descent.execute(words)
        case "exit":
            say("#\(number) ok")
            exit(words.first.flatMap(Int32.init) ?? 0)
        default:
            throw BusFailure(operation: "perform", subject: command, errno: ENOSYS)
        }
    }

    /// `PATH INTERFACE MEMBER ARGUMENT…`, arguments as `Argument` writes them.
    private func call(_ words: [String]) throws -> [String] {
        Argument.words(of: try bus.call(try message(words), timeout: 300_000_000))
    }

    /// A property of its application, by path and name, as `Variant.texts` writes it.
    private func property(_ words: [String]) throws -> String {
        let get = ["Get", "s:\(BusNames.application)", "s:\(words.last ?? "")"]
        let request = try message([words.first ?? "", BusNames.properties] + get)
        return (try bus.call(request, timeout: 300_000_000).readVariant().texts ?? []).joined(separator: " ")
    }

    /// The same, and says `answer NUMBER ok …` or `answer NUMBER error NAME` when the answer comes.
    private func begin(_ words: [String], _ number: String) throws {
        let message = try message(words)
        calls.append(
            try bus.callAsync(message, timeout: .max) { reply in
                let answer = reply.error.map { ["error", $0.name] } ?? ["ok"] + Argument.words(of: reply)
                say((["answer", number] + answer).joined(separator: " "))
            })
    }

    private func message(_ words: [String]) throws -> Message {
        guard words.count >= 3 else {
            throw BusFailure(operation: "call", subject: "words", errno: EINVAL)
        }
        let message = try bus.newCall(
            destination: BusNames.service, path: words[0], interface: words[1], member: words[2])
        for word in words.dropFirst(3) { try Argument.append(word, to: message) }
        return message
    }

    private static func tell(_ message: borrowing Message) {
        let head = [message.path ?? "", message.interface ?? "", message.member ?? ""]
        say((["signal"] + head + Argument.words(of: message)).joined(separator: " "))
        // The dictionary has a line of its own.
        if message.member == "OpenURLs" { _ = try? message.readStrings() }
        if let entries = try? message.readDictionary() {
            let words = entries.map { "\($0.key)=\($0.value)" }
            say((["options", message.member ?? ""] + words).joined(separator: " "))
        }
        try? message.rewind()
    }
}
