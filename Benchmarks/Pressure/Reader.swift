import Glibc
import Linux

/// The application in front in scenes D and E: a request walks all of its memory and reads from files that it has
/// mapped, which are larger than what the kernel leaves it when memory runs short. It grows in the same thread.
enum Reader {
    static let mebibytes = 60
    static let file = 120
    /// The MiB that each request reads, at a random place.
    static let stretch = 2
    /// The time after the signal in which it only answers, before it grows, in microseconds.
    static let quiet: UInt64 = 5_000_000
    /// The time between the beginnings of two steps, in microseconds: 400 MiB in 5 s.
    static let interval: UInt64 = 100_000

    /// Runs a front of one process, for scene D.
    static func run(_ board: Board, file path: String) -> Never {
        let memory = Memory(mebibytes: mebibytes)
        memory.touch(from: 0, count: mebibytes * Memory.mebibyte)
        let file = MappedFile(path: path, mebibytes: file)
        var seed: UInt64 = 1
        serve(board) {
            memory.walk()
            file.read(mebibytes: stretch, seed: &seed)
        }
    }

    /// Answers by the clock, and grows once it has received the signal and the quiet time is over.
    static func serve(_ board: Board, _ answer: () -> Void) -> Never {
        Signals.blockStart()
        let growth = Memory(mebibytes: Front.growth)
        var grown = 0
        var next: UInt64?
        Scene.sayReady()
        var due = now + Front.period
        while true {
            board[.due] = due
            sleep(until: due)
            answer()
            if let moment = next, now >= moment, grown < Front.growth {
                growth.mark(from: grown * Memory.mebibyte, count: Front.step * Memory.mebibyte)
                grown += Front.step
                board[.touched] = UInt64(grown * Memory.mebibyte)
                next = moment + interval
                if grown >= Front.growth { board[.grown] = now }
            } else if next == nil, Signals.hasStarted {
                next = now + quiet
            }
            board.answer(due: due, at: now)
            due += Front.period
        }
    }
}

/// The application in front in scene E: eight processes, as browsers have them, each with 30 MiB of a file mapped and
/// shared, and its own memory. They answer in turn.
enum Browser {
    static let processes = 8
    static let file = 30
    static let mebibytes = 8

    static func run(_ board: Board, directory: String) -> Never {
        var helpers: [Helper] = []
        for number in 1..<processes { helpers.append(Helper(number: number, directory: directory)) }
        var own = Page(number: 0, directory: directory)
        for helper in helpers { helper.awaitAnswer() }
        var turn = 0
        Reader.serve(board) {
            if turn == 0 {
                own.answer()
            } else {
                helpers[turn - 1].ask()
                helpers[turn - 1].awaitAnswer()
            }
            turn = (turn + 1) % processes
        }
    }

    /// One of the browser's processes: its memory and its work.
    private struct Page {
        let memory: Memory
        let file: MappedFile
        var seed: UInt64

        init(number: Int, directory: String) {
            memory = Memory(mebibytes: mebibytes)
            memory.touch(from: 0, count: mebibytes * Memory.mebibyte)
            file = MappedFile(path: "\(directory)/\(number)", mebibytes: Browser.file)
            seed = UInt64(number + 1)
        }

        mutating func answer() {
            memory.walk()
            file.read(mebibytes: Reader.stretch, seed: &seed)
        }
    }

    /// Another process of the application, which ends with it.
    private struct Helper {
        let asked: Int32
        let answered: Int32

        init(number: Int, directory: String) {
            var request: [Int32] = [0, 0]
            var reply: [Int32] = [0, 0]
            guard pipe(&request) == 0, pipe(&reply) == 0 else { Scene.fail("no pipes") }
            asked = request[1]
            answered = reply[0]
            // Our end is closed when this process ends, so the later children must not inherit it.
            for end in [asked, answered] { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
            let words = ["appstate-scene", "page", "\(number)", directory, "\(request[0])", "\(reply[1])"]
            var arguments: [UnsafeMutablePointer<CChar>?] = words.map { strdup($0) }
            arguments.append(nil)
            var process = pid_t()
            guard posix_spawn(&process, "/proc/self/exe", nil, nil, &arguments, environ) == 0 else {
                Scene.fail("no process")
            }
            close(request[0])
            close(reply[1])
        }

        func ask() {
            var byte: UInt8 = 0
            _ = write(asked, &byte, 1)
        }

        /// A browser that loses one of its pages counts as dead.
        func awaitAnswer() {
            var byte: UInt8 = 0
            var count = 0
            repeat { count = read(answered, &byte, 1) } while count < 0 && errno == EINTR
            if count != 1 { Scene.fail("a page has died") }
        }
    }

    /// Runs one of the other processes. It replies to each byte from `asked` with a byte to `answered`.
    static func runPage(number: Int, directory: String, asked: Int32, answered: Int32) -> Never {
        var page = Page(number: number, directory: directory)
        var byte: UInt8 = 0
        _ = write(answered, &byte, 1)
        while true {
            let count = read(asked, &byte, 1)
            if count < 0, errno == EINTR { continue }
            if count != 1 { exit(0) }
            page.answer()
            _ = write(answered, &byte, 1)
        }
    }
}

/// A file of noise, mapped and shared, like pictures, fonts, caches and databases of applications.
struct MappedFile {
    private let base: UnsafeRawPointer
    private let mebibytes: Int

    /// Creates the file if it does not exist.
    init(path: String, mebibytes: Int) {
        let size = mebibytes * Memory.mebibyte
        let file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard file >= 0 else { Scene.fail("cannot open \(path)") }
        Self.fill(file, mebibytes)
        guard let address = mmap(nil, size, PROT_READ, MAP_SHARED, file, 0), address != MAP_FAILED else {
            Scene.fail("cannot map \(path)")
        }
        close(file)
        base = UnsafeRawPointer(address)
        self.mebibytes = mebibytes
    }

    private static func fill(_ file: Int32, _ mebibytes: Int) {
        var noise: UInt64 = 0x9E37_79B9_7F4A_7C15
        var piece = [UInt64](repeating: 0, count: Memory.mebibyte / 8)
        for index in piece.indices {
            noise ^= noise << 13
            noise ^= noise >> 7
            noise ^= noise << 17
            piece[index] = noise
        }
        for number in 0..<mebibytes {
            piece[0] = UInt64(number)
            guard write(file, piece, Memory.mebibyte) == Memory.mebibyte else {
                Scene.fail("the disk is full")
            }
        }
        fsync(file)
    }

    /// Reads a word of each page of `count` MiB, at a random place.
    func read(mebibytes count: Int, seed: inout UInt64) {
        let begin = Memory.pick(mebibytes - count + 1, &seed) * Memory.mebibyte
        var sum: UInt64 = 0
        for offset in stride(from: begin, to: begin + count * Memory.mebibyte, by: Memory.page) {
            sum ^= base.load(fromByteOffset: offset, as: UInt64.self)
        }
        // Keeps the compiler from removing the reads.
        seed ^= sum & 1
    }
}
