import Glibc

/// Data that the processes of a scene share: a file in memory, so that the measurements of the application in front
/// outlive it. Each word has only one writer, and a system call lies between any two reads.
struct Board {
    /// Offsets of words of 64 bits.
    enum Word: Int {
        /// The time at which the last page of the growth was touched; 0: not yet.
        case grown
        /// The bytes touched by the growth or by the leak.
        case touched
        /// The time at which the request that is being served was due; 0: no request yet.
        case due
        /// The number of answered requests.
        case answered
    }

    /// The number of requests whose latencies are kept: at 50 a second, 163 s.
    static let capacity = 8192

    private let words: UnsafeMutablePointer<UInt64>

    /// Maps the file, and creates it if it does not exist.
    init(path: String) {
        let size = 4096 + Self.capacity * 16
        let file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard file >= 0, ftruncate(file, size) == 0,
            let address = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0),
            address != MAP_FAILED
        else { Scene.fail("cannot map \(path)") }
        close(file)
        words = address.bindMemory(to: UInt64.self, capacity: size / 8)
    }

    subscript(word: Word) -> UInt64 {
        get { words[word.rawValue] }
        nonmutating set { words[word.rawValue] = newValue }
    }

    /// Records the next request: when it was due, and when it was answered.
    func answer(due: UInt64, at time: UInt64) {
        let index = 512 + Int(self[.answered]) % Self.capacity * 2
        words[index] = due
        words[index + 1] = time
        self[.answered] += 1
    }

    /// The slowest answered requests: milliseconds since `begin`, and their latency.
    func worst(from begin: UInt64, to end: UInt64) -> String {
        var found: [(due: UInt64, took: UInt64)] = []
        for number in 0..<min(Int(self[.answered]), Self.capacity) {
            let index = 512 + number * 2
            guard words[index] >= begin, words[index] < end else { continue }
            found.append((words[index] - begin, words[index + 1] - words[index]))
        }
        found.sort { $0.took > $1.took }
        return found.prefix(20).map { "\($0.due / 1000):\($0.took / 1000)" }.joined(separator: " ")
    }

    /// The latency in microseconds of each request that was due in the span, as far as latencies are kept.
    ///
    /// A request that was due before `end` and not answered by then counts too, with the time it had waited: an
    /// application that is killed in the middle of a stall did not answer fast.
    func latencies(from begin: UInt64, to end: UInt64) -> [UInt64] {
        var found: [UInt64] = []
        for number in 0..<min(Int(self[.answered]), Self.capacity) {
            let index = 512 + number * 2
            guard words[index] >= begin, words[index] < end else { continue }
            found.append(min(words[index + 1], end) - words[index])
        }
        var waiting = self[.due]
        while waiting != 0, waiting < end {
            if waiting >= begin { found.append(end - waiting) }
            waiting += Front.period
        }
        return found.sorted()
    }
}
