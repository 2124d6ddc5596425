/// A window of the application with a life and a state of its own.
///
/// An application declares scenes with ``ApplicationDelegate/application(_:configurationForConnecting:options:)``. The
/// library connects a scene at the launch, another one for each scene of an earlier run, and one whenever the
/// application or another program asks for it. The toolkit knows the window; what it knows, the application passes on
/// with ``windowDidChange(isVisible:isActive:)``.
@MainActor
public final class Scene {
    /// Names the scene, in this run and in later ones.
    public nonisolated let persistentIdentifier: String
    /// The kind of scene, by which the application chooses the delegate: ``windowRole`` or a word of its own.
    public nonisolated let role: String
    /// Its state, as last announced to its delegate.
    public internal(set) var state = SceneState.unattached
    /// Data of the application's that is saved and restored together with the scene.
    public var userInfo: [String: Value]
    /// Handles the events of its life; nil: it is not connected.
    public internal(set) var delegate: (any SceneDelegate)?

    /// The role of an ordinary window.
    public nonisolated static let windowRole = "window"

    var window = SceneStates.Window()
    /// What an earlier run saved for it, until it is connected.
    var saved: [UInt8]?

    init(
        _ id: String = String(UInt64.random(in: .min ... .max), radix: 16), role: String = windowRole,
        userInfo: [String: Value] = [:], saved: [UInt8]? = nil
    ) {
        persistentIdentifier = id
        self.role = role
        self.userInfo = userInfo
        self.saved = saved
    }

    /// Passes on what the toolkit knows about the scene's window, each time that it changes. Until the first call the
    /// window counts as hidden.
    ///
    /// - Parameters:
    ///   - isVisible: whether it is on the screen: mapped, and not minimized.
    ///   - isActive: whether it has the focus.
    public func windowDidChange(isVisible: Bool, isActive: Bool) {
        window = SceneStates.Window(isVisible: isVisible, isActive: isActive)
        Application.shared.life?.windowDidChange(of: self)
    }
}

/// The states of a scene, spelled as in the D-Bus API.
public enum SceneState: String, Hashable, Sendable, CaseIterable {
    /// It is not connected: its delegate has not been called yet, or the scene is gone.
    case unattached
    /// Its window is not visible, or the application is in the background.
    case background
    /// Its window is visible, and does not have the focus.
    case foregroundInactive = "foreground-inactive"
    /// Its window has the focus. No two scenes are in this state.
    case foregroundActive = "foreground-active"
}

/// How a scene is connected.
public struct SceneConfiguration {
    /// Handles the events of the scene's life.
    public let delegate: any SceneDelegate

    public init(delegate: any SceneDelegate) { self.delegate = delegate }
}

/// Why a scene is connected.
public struct SceneConnectionOptions: Hashable, Sendable {
    /// The URLs that it is to open.
    public let urls: [String]
    /// The options of the request, as for ``ApplicationDelegate/application(_:reopen:)``; empty at the launch.
    public let values: [String: Value]

    public init(urls: [String] = [], values: [String: Value] = [:]) {
        self.urls = urls
        self.values = values
    }
}

/// Handles the events of a scene's life. Every callback has a default implementation that does nothing.
///
/// They run one after the other with those of the application's delegate, in one order. On the way to the foreground
/// the application's callback comes first, on the way to the background those of its scenes do: a scene is never
/// further in the foreground than its application.
@MainActor
public protocol SceneDelegate: AnyObject {
    /// The state of the scene that is saved together with the application's, and restored when the scene is connected
    /// again.
    associatedtype RestorableState: Codable = Never

    /// The scene is connected: make its window here.
    func scene(_ scene: Scene, willConnectTo application: Application, options: SceneConnectionOptions)

    /// Its window has received the focus.
    func sceneDidBecomeActive(_ scene: Scene)

    /// It is about to lose the focus.
    func sceneWillResignActive(_ scene: Scene)

    /// It is about to become visible.
    func sceneWillEnterForeground(_ scene: Scene)

    /// It is no longer visible. If the application enters the background with it, its own callback follows, and the
    /// state of all scenes is saved after that.
    func sceneDidEnterBackground(_ scene: Scene) async

    /// The scene is gone for good, and is not restored. It is not called when the application ends.
    func sceneDidDisconnect(_ scene: Scene)

    /// Somebody asks for this scene while it is connected: bring its window to the front. The options are those of
    /// ``ApplicationDelegate/application(_:reopen:)``.
    func scene(_ scene: Scene, reopen options: [String: Value])

    /// Somebody asks this scene to open URLs.
    func scene(_ scene: Scene, open urls: [String], options: [String: Value])

    /// Returns the state of the scene to restore; nil: there is nothing to restore but the scene itself.
    func stateRestoration(for scene: Scene) -> RestorableState?

    /// Receives the state that an earlier run saved, after `willConnectTo`.
    func scene(_ scene: Scene, restoreInteractionStateWith state: RestorableState)
}

extension SceneDelegate {
    public func scene(
        _ scene: Scene, willConnectTo application: Application, options: SceneConnectionOptions
    ) {}
    public func sceneDidBecomeActive(_ scene: Scene) {}
    public func sceneWillResignActive(_ scene: Scene) {}
    public func sceneWillEnterForeground(_ scene: Scene) {}
    public func sceneDidEnterBackground(_ scene: Scene) async {}
    public func sceneDidDisconnect(_ scene: Scene) {}
    public func scene(_ scene: Scene, reopen options: [String: Value]) {}
    public func scene(_ scene: Scene, open urls: [String], options: [String: Value]) {}
    public func stateRestoration(for scene: Scene) -> RestorableState? { nil }
    public func scene(_ scene: Scene, restoreInteractionStateWith state: RestorableState) {}
}

extension SceneDelegate {
    /// The scene's state as bytes; nil: there is none.
    func encodedState(of scene: Scene) throws -> [UInt8]? {
        try stateRestoration(for: scene).map { try StateEncoder.encode($0) }
    }

    func restore(_ bytes: [UInt8], to scene: Scene) throws {
        guard RestorableState.self != Never.self else { return }
        let state = try StateDecoder.decode(RestorableState.self, from: bytes)
        self.scene(scene, restoreInteractionStateWith: state)
    }
}

extension Application {
    /// The scenes that are connected, in the order in which they were connected.
    public var connectedScenes: [Scene] { life?.scenes.connected ?? [] }

    /// Asks for a scene: a connected one is asked to come to the front; without one, a new scene is connected.
    ///
    /// - Parameters:
    ///   - scene: the scene to bring to the front; nil: a new one.
    ///   - role: that of a new scene.
    ///   - userInfo: that of a new scene.
    public func requestSceneActivation(
        _ scene: Scene? = nil, role: String = Scene.windowRole, userInfo: [String: Value] = [:]
    ) {
        life?.activate(scene ?? Scene(role: role, userInfo: userInfo))
    }

    /// Disconnects a scene for good, for example when its window was closed. The scene is left out from the next save
    /// on.
    public func requestSceneDestruction(_ scene: Scene) { life?.disconnect(scene) }
}
