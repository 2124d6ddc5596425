import Glibc

/// Plays one process of a scene in which memory runs short. The first argument is its role. `scripts/bench-pressure`
/// starts each process separately, so that the kernel treats them separately.
@main
enum Scene {
    static func main() {
        // The reader of a pipe may be killed at any time. A write to that pipe must not end this process.
        signal(SIGPIPE, SIG_IGN)
        let words = CommandLine.arguments
        switch (words.dropFirst().first, words.count) {
        case ("front", 3):
            Front.run(Board(path: words[2]))
        case ("reader", 4):
            Reader.run(Board(path: words[2]), file: words[3])
        case ("browser", 4):
            Browser.run(Board(path: words[2]), directory: words[3])
        case ("page", 6):
            guard let number = Int(words[2]), let asked = Int32(words[4]), let answered = Int32(words[5])
            else {
                usage()
            }
            Browser.runPage(number: number, directory: words[3], asked: asked, answered: answered)
        case ("leak", 3):
            Leak.run(Board(path: words[2]))
        case ("sleeper", 3):
            guard let size = Int(words[2]), size > 0 else { usage() }
            Sleeper.run(mebibytes: size)
        case ("forget", 2):
            Emulator.forget()
        case ("watch", 6...):
            guard let plan = Watch.Plan(words: Array(words.dropFirst(2))) else { usage() }
            Watch.run(plan)
        default:
            usage()
        }
    }

    static func usage() -> Never {
        fail(
            """
            appstate-scene front BOARD | leak BOARD | sleeper MIB | reader BOARD FILE | browser BOARD DIRECTORY
                           forget
                           watch SCENE BOARD LINE NAME=PID...   (front, leak, or a sleeper's name)
            """)
    }

    /// Prints the sentence on standard error and exits.
    static func fail(_ sentence: String) -> Never {
        let line = "appstate-scene: \(sentence)\n"
        _ = line.withCString { write(STDERR_FILENO, $0, strlen($0)) }
        exit(2)
    }

    /// Prints an unbuffered line, which tells the process that started this one that all memory is touched.
    static func sayReady() {
        _ = write(STDOUT_FILENO, "ready\n", 6)
    }
}

/// Microseconds of `CLOCK_MONOTONIC`, which all processes of a scene use.
var now: UInt64 {
    var time = timespec()
    _ = clock_gettime(CLOCK_MONOTONIC, &time)
    return UInt64(time.tv_sec) * 1_000_000 + UInt64(time.tv_nsec) / 1_000
}

/// Sleeps until `moment` on the same clock, even if signals arrive.
func sleep(until moment: UInt64) {
    var time = timespec(tv_sec: Int(moment / 1_000_000), tv_nsec: Int(moment % 1_000_000) * 1_000)
    while clock_nanosleep(CLOCK_MONOTONIC, Int32(TIMER_ABSTIME), &time, nil) == EINTR {}
}
