import AppState

@main
final class Notes: ApplicationDelegate {
    static let applicationID = "org.example.Notes"

    /// The state that is restored at the next launch, no matter how the application ended.
    struct RestorableState: Codable {
        var text: String
    }

    private let window = Window(title: "Notes")
    private let server = Server()
    /// Earlier versions of the text. The application can do without them.
    private var versions: [String] = []
    private var saving: Task<Void, Never>?

    /// GTK's main loop runs the application. Without a main() here, the library's own does.
    static func main() {
        Window.run(Notes())
    }

    func application(
        _ application: Application, didFinishLaunchingWithOptions launchOptions: LaunchOptions
    ) async {
        window.edited = { [self] in
            versions.append(window.text)
            application.hasUnsavedChanges = true
            saveSoon()
        }
        window.closed = { application.terminate() }
        window.present()
    }

    /// Saves the text a second after the last edit: each edit replaces the task. An application may also be stopped or
    /// ended without notice.
    private func saveSoon() {
        saving?.cancel()
        saving = Task {
            do {
                try await Task.sleep(for: .seconds(1))
                try await Application.shared.saveState()
            } catch is CancellationError {
                // Another edit has come.
            } catch {
                log("save: \(error)")
            }
        }
    }

    func applicationDidEnterBackground(_ application: Application) async {
        // The text is saved when this has returned. The upload may take longer than that: the background task
        // keeps the application from being suspended before it is done.
        Task {
            await application.withBackgroundTask(named: "upload") { await self.upload() }
        }
    }

    private func upload() async {
        do {
            let text = window.text
            try await server.upload(text)
            // An edit during the upload is not on the server.
            if window.text == text { Application.shared.hasUnsavedChanges = false }
        } catch {
            log("upload: \(error)")
        }
    }

    func applicationDidReceiveMemoryWarning(_ application: Application, level: MemoryWarning) {
        versions = []
        log("dropped the earlier versions")
    }

    func application(_ application: Application, open urls: [String], options: [String: Value]) {
        for url in urls { window.text += read(url) }
        application.hasUnsavedChanges = true
        saveSoon()
    }

    func application(_ application: Application, reopen options: [String: Value]) {
        window.present()
    }

    func applicationWillEncodeRestorableState(_ application: Application) -> RestorableState? {
        RestorableState(text: window.text)
    }

    func application(_ application: Application, didDecodeRestorableState state: RestorableState) {
        // If appstated was started after this application, the user may have typed already.
        window.text = window.text.isEmpty ? state.text : state.text + "\n" + window.text
        log("restored \(state.text)")
    }
}
