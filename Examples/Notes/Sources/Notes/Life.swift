import AppState

// Logs the callbacks for which Notes has no other use, so that one can watch its life.
extension Notes {
    func application(
        _ application: Application, didFinishLaunchingWithOptions launchOptions: LaunchOptions
    ) async {
        log("application didFinishLaunching")
    }

    func applicationWillEnterForeground(_ application: Application) {
        log("application willEnterForeground")
    }

    func applicationDidBecomeActive(_ application: Application) { log("application didBecomeActive") }
    func applicationWillResignActive(_ application: Application) { log("application willResignActive") }
    func applicationWillTerminate(_ application: Application) async { log("application willTerminate") }
}

extension Note {
    func sceneWillEnterForeground(_ scene: Scene) { say("willEnterForeground", of: scene) }
    func sceneWillResignActive(_ scene: Scene) { say("willResignActive", of: scene) }
    func sceneDidEnterBackground(_ scene: Scene) async { say("didEnterBackground", of: scene) }

    func say(_ what: String, of scene: Scene) { log("scene \(scene.persistentIdentifier) \(what)") }
}
