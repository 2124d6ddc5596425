import AppState

@main
final class Notes: ApplicationDelegate {
    static let applicationID = "org.example.Notes"

    private let server = Server()
    private var saving: Task<Void, Never>?

    /// GTK's main loop runs the application. Without a main() here, the library's own does.
    static func main() {
        Window.run(Notes())
    }

    /// Each window is a scene. At the launch, the library connects those that the last run had, or a new one.
    func application(
        _ application: Application, configurationForConnecting scene: Scene, options: SceneConnectionOptions
    ) -> SceneConfiguration? {
        SceneConfiguration(delegate: Note { [self] in saveSoon() })
    }

    private var notes: [Note] { Application.shared.connectedScenes.compactMap { $0.delegate as? Note } }
    private var texts: [String] { notes.map(\.text) }

    /// Saves the texts a second after the last edit: each edit replaces the task. An application may also be stopped or
    /// ended without notice.
    private func saveSoon() {
        Application.shared.hasUnsavedChanges = true
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
        log("application didEnterBackground")
        // The state is saved when this has returned. The upload may take longer than that: the background task
        // keeps the application from being suspended before it is done.
        Task {
            await application.withBackgroundTask(named: "upload") { await self.upload() }
        }
    }

    private func upload() async {
        do {
            let texts = texts
            try await server.upload(texts.joined(separator: "\n"))
            // An edit during the upload is not on the server.
            if texts == self.texts { Application.shared.hasUnsavedChanges = false }
        } catch {
            log("upload: \(error)")
        }
    }

    func applicationDidReceiveMemoryWarning(_ application: Application, level: MemoryWarning) {
        for note in notes { note.versions = [] }
        log("dropped the earlier versions")
    }

    /// No scene is named: the one furthest in front opens the files.
    func application(_ application: Application, open urls: [String], options: [String: Value]) {
        guard let scene = application.connectedScenes.max(by: { $0.state < $1.state }) else { return }
        scene.delegate?.scene(scene, open: urls, options: options)
    }

    func application(_ application: Application, reopen options: [String: Value]) {
        notes.last?.window.present()
    }
}

/// A window with a text of its own.
final class Note: SceneDelegate {
    /// What is restored at the next launch, no matter how the application ended.
    struct RestorableState: Codable {
        var text: String
    }

    let window = Window(title: "Notes")
    /// Earlier versions of the text. The application can do without them.
    var versions: [String] = []
    var text: String { window.text }
    private let edited: () -> Void

    init(edited: @escaping () -> Void) { self.edited = edited }

    func scene(_ scene: Scene, willConnectTo application: Application, options: SceneConnectionOptions) {
        say("willConnect", of: scene)
        window.edited = { [self] in
            versions.append(text)
            edited()
        }
        window.another = { application.requestSceneActivation() }
        // Only GTK knows the window. The library combines this with the state of the application.
        window.changed = { [window] in
            scene.windowDidChange(isVisible: window.isVisible, isActive: window.isActive)
        }
        // The last window is there again at the next launch; any other one is closed for good.
        window.closed = {
            if application.connectedScenes.count > 1 {
                application.requestSceneDestruction(scene)
            } else {
                application.terminate()
            }
        }
        window.text = options.urls.map(read).joined()
        window.present()
    }

    func sceneDidDisconnect(_ scene: Scene) {
        say("didDisconnect", of: scene)
        window.close()
        edited()
    }

    func scene(_ scene: Scene, reopen options: [String: Value]) {
        window.present()
    }

    func scene(_ scene: Scene, open urls: [String], options: [String: Value]) {
        window.text += urls.map(read).joined()
        edited()
    }

    func stateRestoration(for scene: Scene) -> RestorableState? {
        RestorableState(text: text)
    }

    func scene(_ scene: Scene, restoreInteractionStateWith state: RestorableState) {
        window.text = state.text
        log("restored \(state.text)")
    }
}
