import Glibc

/// What an application of `Benchmarks/Living` is without the library.
@main
enum Main {
    static func main() {
        puts("ready")
        fflush(nil)
        while true { pause() }
    }
}
