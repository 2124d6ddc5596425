import AppState

@main
final class Notes: ApplicationDelegate {
    static let applicationID = "org.example.Notes"

    private var saving: Task<Void, Never>?

    /// GTK's main loop runs the application. Without a main() here, the library's own does.
    static func main() {
        Window.run(Notes())
    }

    /// Each window is a scene. At the launch, the library connects those that the last run had, or a new one.
    func application(
        _ application: Application, configurationForConnecting scene: Scene, options: SceneConnectionOptions
    ) -> SceneConfiguration? {
        SceneConfiguration(delegate: Note(of: self))
    }

    private var notes: [Note] { Application.shared.connectedScenes.compactMap { $0.delegate as? Note } }
    private var front: Scene? { Application.shared.connectedScenes.max { $0.state < $1.state } }

    /// What the user is doing, so that it can be continued on another machine: the note in front.
    func announce() {
        guard let text = (front?.delegate as? Note)?.text else { return }
        Application.shared.userActivity = UserActivity(
            type: "org.example.Notes.editing", info: ["text": .string(text)])
    }

    /// A note from another machine gets a window of its own.
    func application(_ application: Application, continue activity: UserActivity) {
        application.requestSceneActivation(userInfo: activity.info)
    }

    /// Saves the texts a second after the last edit: each edit replaces the task. An application may also be stopped or
    /// ended without notice.
    func edited() {
        announce()
        Application.shared.hasUnsavedChanges = true
        saving?.cancel()
        saving = Task {
            do {
                try await Task.sleep(for: .seconds(1))
                try await Application.shared.saveState()
                if !Task.isCancelled { Application.shared.hasUnsavedChanges = false }
            } catch {
                // If it is cancelled, another edit has come.
                if !Task.isCancelled { log("save: \(error)") }
            }
        }
    }

    /// The upload goes on while Notes is suspended or does not run.
    func applicationDidEnterBackground(_ application: Application) async {
        log("application didEnterBackground")
        await saving?.value
        guard let server, !notes.isEmpty else { return }
        let session = BackgroundTransferSession.shared
        do {
            // A file that is being sent must not change, and only the latest texts count.
            for earlier in try await session.transfers() { try? await session.cancel(earlier) }
            try write(notes.map(\.text).joined(separator: "\n"), to: copy)
            try await session.upload(copy, to: server)
        } catch {
            log("upload: \(error)")
        }
    }

    func application(_ application: Application, didFinish transfer: FinishedTransfer) async {
        log(transfer.error ?? "uploaded to \(transfer.url)")
    }

    func applicationDidReceiveMemoryWarning(_ application: Application, level: MemoryWarning) {
        for note in notes { note.versions = [] }
        log("dropped the earlier versions")
    }

    /// No scene is named: the one furthest in front opens the files.
    func application(_ application: Application, open urls: [String], options: [String: Value]) {
        if let front { front.delegate?.scene(front, open: urls, options: options) }
    }

    func application(_ application: Application, reopen options: [String: Value]) {
        if let front { front.delegate?.scene(front, reopen: options) }
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
    private let notes: Notes

    init(of notes: Notes) { self.notes = notes }

    func scene(_ scene: Scene, willConnectTo application: Application, options: SceneConnectionOptions) {
        say("willConnect", of: scene)
        window.edited = { [self] in
            versions.append(text)
            notes.edited()
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
        let continued = scene.userInfo.removeValue(forKey: "text")?.stringValue
        window.text = continued ?? options.urls.map(read).joined()
        if !text.isEmpty { notes.edited() }
        window.present()
    }

    func sceneDidBecomeActive(_ scene: Scene) {
        say("didBecomeActive", of: scene)
        notes.announce()
    }

    func sceneDidDisconnect(_ scene: Scene) {
        say("didDisconnect", of: scene)
        window.close()
        notes.edited()
    }

    func scene(_ scene: Scene, reopen options: [String: Value]) {
        window.present()
    }

    func scene(_ scene: Scene, open urls: [String], options: [String: Value]) {
        window.text += urls.map(read).joined()
        notes.edited()
    }

    func stateRestoration(for scene: Scene) -> RestorableState? {
        RestorableState(text: text)
    }

    func scene(_ scene: Scene, restoreInteractionStateWith state: RestorableState) {
        window.text = state.text
        log("restored \(state.text)")
    }
}
