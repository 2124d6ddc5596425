internal import AppStateContract

/// The application's scenes.
struct Scenes {
    /// Those that are connected, in order.
    var connected: [Scene] = []
    /// Those of an earlier run that are not connected yet: nobody has asked to see the application.
    var waiting: [Scene] = []
    /// Whether there were any: then the saved state says which there are.
    var areUsed = false
    var states = SceneStates()
}

// Connects scenes, and passes their edges to their delegates in steps of the director.
extension Life {
    // MARK: Connecting

    /// The end of a launch. An application that is launched into the background shows no window of its own accord.
    func connectScenes(_ options: LaunchOptions) {
        guard options.launchMode == .foreground else { return }
        connectWaiting()
        // With URLs, the scene for them is connected when they arrive.
        let isForURLs = options.scene != nil && !options.urls.isEmpty
        let isNew = options.scene == LaunchKey.newScene
        if isNew || scenes.connected.isEmpty, !isForURLs { connect(Scene()) }
    }

    func connectWaiting() { for scene in scenes.waiting { connect(scene) } }

    /// - Returns: whether the application has such a scene.
    @discardableResult
    private func connect(_ scene: Scene, _ options: SceneConnectionOptions = SceneConnectionOptions()) -> Bool
    {
        scenes.waiting.removeAll { $0 === scene }
        guard
            let configuration = delegate.application(
                application, configurationForConnecting: scene, options: options)
        else { return false }
        scenes.areUsed = true
        scenes.connected.append(scene)
        scenes.states.connect(scene.persistentIdentifier)
        scene.delegate = configuration.delegate
        configuration.delegate.scene(scene, willConnectTo: application, options: options)
        if let bytes = scene.saved {
            scene.saved = nil
            do {
                try configuration.delegate.restore(bytes, to: scene)
            } catch {
                Log.say("restoring scene \(scene.persistentIdentifier): \(error)")
            }
        }
        scene.state = .background
        return true
    }

    func activate(_ scene: Scene) {
        director.perform(.delivery) {
            if let delegate = scene.delegate {
                delegate.scene(scene, reopen: [:])
            } else {
                self.connect(scene)
            }
        }
        connection.arm()
    }

    func disconnect(_ scene: Scene) {
        director.perform {
            guard let delegate = scene.delegate else { return }
            self.director.insert { director in
                self.move(self.scenes.states.disconnect(scene.persistentIdentifier))
                director.perform {
                    self.scenes.connected.removeAll { $0 === scene }
                    scene.state = .unattached
                    scene.delegate = nil
                    delegate.sceneDidDisconnect(scene)
                }
            }
        }
        connection.arm()
    }

    // MARK: Requests from others

    /// Whether a scene handles this, and not the application's delegate. Without URLs, somebody wants to see the
    /// application.
    func isForScene(_ urls: [String], _ values: [String: Value]) -> Bool {
        let options = SceneConnectionOptions(urls: urls, values: values)
        guard let id = values[LaunchKey.scene.rawValue]?.stringValue else {
            return isShown(options) && urls.isEmpty
        }
        if id == LaunchKey.newScene { return connect(Scene(), options) }
        if let scene = scenes.waiting.first(where: { $0.persistentIdentifier == id }) {
            return connect(scene, options)
        }
        guard let scene = scenes.connected.first(where: { $0.persistentIdentifier == id }),
            let delegate = scene.delegate
        else {
            if scenes.areUsed { Log.say("there is no scene \(id)") }
            return isShown(SceneConnectionOptions(values: values)) && urls.isEmpty
        }
        if urls.isEmpty {
            delegate.scene(scene, reopen: values)
        } else {
            delegate.scene(scene, open: urls, options: values)
        }
        return true
    }

    /// Connects the scenes that wait, or a new one if there is none.
    ///
    /// - Returns: whether any was connected.
    private func isShown(_ options: SceneConnectionOptions) -> Bool {
        let count = scenes.connected.count
        connectWaiting()
        if scenes.connected.isEmpty { connect(Scene(), SceneConnectionOptions(values: options.values)) }
        return scenes.connected.count > count
    }

    // MARK: States

    /// Only the latest report about a window counts.
    func windowDidChange(of scene: Scene) {
        director.perform(.event("scene \(scene.persistentIdentifier)")) {
            self.director.insert { _ in
                self.move(self.scenes.states.report(scene.window, of: scene.persistentIdentifier))
            }
        }
        connection.arm()
    }

    func limitScenes(to state: ApplicationState) { move(scenes.states.limit(to: state)) }

    /// Adds a step for each edge; called within `insert`.
    private func move(_ edges: [SceneStates.Edge]) {
        for edge in edges {
            guard let scene = scenes.connected.first(where: { $0.persistentIdentifier == edge.scene }),
                let delegate = scene.delegate
            else { continue }
            if edge.to == .background {
                director.performLater {
                    scene.state = edge.to
                    await delegate.sceneDidEnterBackground(scene)
                }
            } else {
                director.perform { self.announce(edge, of: scene, to: delegate) }
            }
        }
    }

    /// A *will* comes before the edge, a *did* after it.
    private func announce(_ edge: SceneStates.Edge, of scene: Scene, to delegate: any SceneDelegate) {
        switch (edge.from, edge.to) {
        case (.foregroundActive, _): delegate.sceneWillResignActive(scene)
        case (.background, _): delegate.sceneWillEnterForeground(scene)
        default: break
        }
        scene.state = edge.to
        if edge.to == .foregroundActive { delegate.sceneDidBecomeActive(scene) }
    }

    // MARK: Saved state

    /// Whether there may be state to save or to restore.
    var hasState: Bool { delegate.hasState || scenes.areUsed }

    /// The application's state as bytes. Empty: there is nothing to restore. nil: it has no state, and the saved state
    /// stays as it is.
    func encodedState() throws -> [UInt8]? {
        let own = try delegate.encodedState(of: application)
        guard scenes.areUsed else { return own }
        let saved = try (scenes.connected + scenes.waiting).map { scene in
            SavedState.Scene(
                id: scene.persistentIdentifier, role: scene.role, userInfo: scene.userInfo,
                state: try scene.delegate?.encodedState(of: scene) ?? scene.saved)
        }
        if saved.isEmpty, own?.isEmpty != false { return [] }
        return SavedState(application: own, scenes: saved).encoded
    }

    func restore(_ bytes: [UInt8]) throws {
        let saved = try SavedState(bytes)
        let known = scenes.connected.map(\.persistentIdentifier)
        scenes.waiting = saved.scenes.filter { !known.contains($0.id) }.map {
            Scene($0.id, role: $0.role, userInfo: $0.userInfo, saved: $0.state)
        }
        if !saved.scenes.isEmpty { scenes.areUsed = true }
        if let own = saved.application { try delegate.restore(own, to: application) }
    }
}
