import AppState

/// A scene with a text. Each callback prints a line `told NAME STATE ID STATE-OF-THE-SCENE WORD…`.
final class Part: SceneDelegate {
    struct RestorableState: Codable {
        var text: String
    }

    var text = ""
    private let tells: @MainActor (String, [String]) -> Void

    init(tells: @escaping @MainActor (String, [String]) -> Void) { self.tells = tells }

    private func tell(_ name: String, _ scene: Scene, _ words: String...) {
        tells(name, [scene.persistentIdentifier, scene.state.rawValue] + words)
    }

    func scene(_ scene: Scene, willConnectTo application: Application, options: SceneConnectionOptions) {
        let note = scene.userInfo["note"]?.stringValue ?? "-"
        tell(
            "sceneWillConnect", scene, options.urls.isEmpty ? "-" : options.urls.joined(separator: ","), note)
        write(options.urls, to: scene)
    }

    func sceneDidBecomeActive(_ scene: Scene) { tell("sceneDidBecomeActive", scene) }
    func sceneWillResignActive(_ scene: Scene) { tell("sceneWillResignActive", scene) }
    func sceneWillEnterForeground(_ scene: Scene) { tell("sceneWillEnterForeground", scene) }

    func sceneDidEnterBackground(_ scene: Scene) async {
        tell("sceneDidEnterBackground", scene)
        await Task.yield()
        tell("sceneDoneInBackground", scene)
    }

    func sceneDidDisconnect(_ scene: Scene) { tell("sceneDidDisconnect", scene) }

    func scene(_ scene: Scene, reopen options: [String: Value]) {
        tell("sceneReopen", scene, options["activation-token"]?.stringValue ?? "-")
    }

    func scene(_ scene: Scene, open urls: [String], options: [String: Value]) {
        tell("sceneOpen", scene, urls.joined(separator: ","))
        write(urls, to: scene)
    }

    /// Like the application's text: each URL once.
    private func write(_ urls: [String], to scene: Scene) {
        guard !urls.isEmpty else { return }
        let opened = text.split(separator: "+").map(String.init)
        text = (opened + urls.filter { !opened.contains($0) }).joined(separator: "+")
        say("text \(scene.persistentIdentifier) \(text)")
    }

    func stateRestoration(for scene: Scene) -> RestorableState? { RestorableState(text: text) }

    func scene(_ scene: Scene, restoreInteractionStateWith state: RestorableState) {
        text = state.text
        tell("sceneRestore", scene, text)
    }

    // MARK: Commands

    /// `scenes`: each scene's id, state and text. `scene [INFO]`: a new one. `write NUMBER TEXT`, `note NUMBER INFO`,
    /// `window NUMBER hidden|visible|active`, `close NUMBER`, `front NUMBER`: of the scene with that number, from 0.
    static func perform(_ command: String, _ words: [String]) -> String {
        let application = Application.shared
        let scenes = application.connectedScenes
        let word = words.last ?? ""
        switch command {
        case "scenes":
            return scenes.map {
                "\($0.persistentIdentifier):\($0.state.rawValue):\(($0.delegate as? Part)?.text ?? "")"
            }.joined(separator: " ")
        case "scene":
            application.requestSceneActivation(userInfo: words.isEmpty ? [:] : ["note": .string(word)])
            return "ok"
        default: break
        }
        guard let number = words.first.flatMap({ Int($0) }), scenes.indices.contains(number) else {
            return "no such scene"
        }
        let scene = scenes[number]
        switch command {
        case "write": (scene.delegate as? Part)?.text = word
        case "note": scene.userInfo["note"] = .string(word)
        case "window": scene.windowDidChange(isVisible: word != "hidden", isActive: word == "active")
        case "close": application.requestSceneDestruction(scene)
        default: application.requestSceneActivation(scene)
        }
        return "ok"
    }
}
