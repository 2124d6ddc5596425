import Glibc

/// The application of `Benchmarks/Living`, without the library.
@main
enum Main {
    static func main() {
        puts("ready")
        fflush(nil)
        while true { pause() }
    }
}
