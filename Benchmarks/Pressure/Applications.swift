import Glibc

/// The application in front: it answers requests, and grows when it gets the signal.
enum Front {
    /// The time between two requests, in microseconds.
    static let period: UInt64 = 20_000
    static let mebibytes = 60
    static let growth = 400
    static let step = 8
    /// The minimum time between the beginnings of two steps: 400 MiB in 10 s.
    static let interval: UInt64 = 200_000

    static func run(_ board: Board) -> Never {
        let memory = Memory(mebibytes: mebibytes)
        memory.touch(from: 0, count: mebibytes * Memory.mebibyte)
        let program = Program()
        Signals.blockStart()
        startGrowing(board)
        Scene.sayReady()
        var seed: UInt64 = 1
        var due = now + period
        while true {
            board[.due] = due
            sleep(until: due)
            // The work of an answer: it uses 256 KiB of its memory and 64 KiB of its program's file.
            memory.use(pages: 64, seed: &seed)
            program.use(pages: 16, seed: &seed)
            board.answer(due: due, at: now)
            // Due by the clock, not relative to the answer: after a late answer, further requests are waiting.
            due += period
        }
    }

    /// Starts a separate thread, as if a document were loaded while the windows still answer.
    private static func startGrowing(_ board: Board) {
        let argument = UnsafeMutablePointer<Board>.allocate(capacity: 1)
        argument.initialize(to: board)
        var thread = pthread_t()
        guard pthread_create(&thread, nil, { Front.grow($0) }, argument) == 0 else {
            Scene.fail("no thread")
        }
    }

    /// Grows in its own thread. The memory stays allocated after the thread has ended.
    private static func grow(_ argument: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
        guard let board = argument?.load(as: Board.self) else { return nil }
        Signals.awaitStart()
        let memory = Memory(mebibytes: growth)
        Growing.run(memory, mebibytes: growth, by: step, every: interval, board)
        board[.grown] = now
        return nil
    }
}

/// Touches its memory and then does nothing until it is killed.
enum Sleeper {
    /// The size of each sleeper in the scenes, in MiB.
    static let usual = 45

    static func run(mebibytes: Int) -> Never {
        let memory = Memory(mebibytes: mebibytes)
        memory.touch(from: 0, count: mebibytes * Memory.mebibyte)
        Scene.sayReady()
        while true { pause() }
    }
}

/// An application in the background that leaks memory until it is killed.
enum Leak {
    /// More than the machine has.
    static let most = 4096
    static let step = 8
    static let interval: UInt64 = 200_000

    static func run(_ board: Board) -> Never {
        Signals.blockStart()
        let memory = Memory(mebibytes: most)
        Scene.sayReady()
        Signals.awaitStart()
        Growing.run(memory, mebibytes: most, by: step, every: interval, board)
        while true { _ = Glibc.pause() }
    }
}

enum Growing {
    /// Steps begin `every` microseconds apart. A late step does not shorten the time until the next one.
    static func run(
        _ memory: Memory, mebibytes: Int, by step: Int, every: UInt64, _ board: Board
    ) {
        for grown in stride(from: 0, to: mebibytes, by: step) {
            let next = now + every
            memory.touch(from: grown * Memory.mebibyte, count: step * Memory.mebibyte)
            board[.touched] += UInt64(step * Memory.mebibyte)
            sleep(until: next)
        }
    }
}

/// SIGUSR1 marks the beginning of the event.
enum Signals {
    private static var start: sigset_t {
        var set = sigset_t()
        sigemptyset(&set)
        sigaddset(&set, SIGUSR1)
        return set
    }

    /// Call this before other threads are created: they inherit the mask.
    static func blockStart() {
        var set = start
        pthread_sigmask(SIG_BLOCK, &set, nil)
    }

    /// Whether the signal is pending, for callers that do not wait for it.
    static var hasStarted: Bool {
        var set = start
        var none = timespec()
        return sigtimedwait(&set, nil, &none) == SIGUSR1
    }

    static func awaitStart() {
        var set = start
        var number: Int32 = 0
        while sigwait(&set, &number) != 0 {}
    }
}
