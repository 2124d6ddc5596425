import AppState

/// An application that saves nothing, and begins a background task when it enters the background.
final class Stateless: ApplicationDelegate {
    static let applicationID = "org.example.LibraryActor"

    init() {}

    func applicationDidEnterBackground(_ application: Application) async {
        Task {
            await application.withBackgroundTask(named: "upload") {
                await withCheckedContinuation { (_: CheckedContinuation<Void, Never>) in }
            }
        }
    }
}
