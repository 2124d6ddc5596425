import AppState
import Glibc

/// The smallest application with the library. It prints a line when its launch is over.
@main
final class Main: ApplicationDelegate {
    func application(
        _ application: Application, didFinishLaunchingWithOptions launchOptions: LaunchOptions
    ) async {
        puts(application.isManaged ? "ready" : "alone")
        fflush(nil)
    }
}
