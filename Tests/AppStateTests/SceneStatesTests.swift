import Testing

@testable import AppState

/// The states of scenes, without an application.
@Suite("The states of scenes")
struct SceneStatesTests {
    private static let hidden = SceneStates.Window()

    /// Any order of reports and of the application's states.
    @Test(
        "no scene is ever further in the foreground than its application or its window, and no edge is left out"
    )
    func anyOrder() {
        var random = SystemRandomNumberGenerator()
        for _ in 0..<200 {
            var states = SceneStates()
            var known: [String: SceneState] = [:]
            var windows: [String: SceneStates.Window] = [:]
            /// Those whose windows are active, the last one at the end.
            var active: [String] = []
            for step in 0..<60 {
                var edges: [SceneStates.Edge] = []
                var gone: String?
                let scene = known.keys.randomElement(using: &random) ?? ""
                switch Int.random(in: 0..<8, using: &random) {
                case 0 where known.count < 5:
                    states.connect("s\(step)")
                    (known["s\(step)"], windows["s\(step)"]) = (.background, Self.hidden)
                case 1:
                    edges = states.disconnect(scene)
                    gone = scene
                case 2...4:
                    let window = SceneStates.Window(isVisible: .random(), isActive: .random())
                    edges = states.report(window, of: scene)
                    if known[scene] != nil {
                        windows[scene] = window
                        if !window.isActive { active.removeAll { $0 == scene } }
                        if window.isActive, !active.contains(scene) { active.append(scene) }
                    }
                default: edges = states.limit(to: ApplicationState.allCases.randomElement() ?? .active)
                }
                var isUp = false
                for edge in edges {
                    #expect(known[edge.scene] == edge.from)
                    #expect(edge.from != .unattached && edge.to != .unattached)
                    #expect((edge.from == .foregroundInactive) != (edge.to == .foregroundInactive))
                    // What leaves the foreground goes before what enters it.
                    if edge.from < edge.to { isUp = true } else { #expect(!isUp) }
                    known[edge.scene] = edge.to
                }
                if let gone { active.removeAll { $0 == gone } }
                if let gone { #expect(known.removeValue(forKey: gone) ?? .background == .background) }
                let focus = active.last { windows[$0]?.isVisible == true }
                for (scene, state) in known {
                    let window = windows[scene] ?? Self.hidden
                    let isForeground = window.isVisible && [.inactive, .active].contains(states.limit)
                    let isActive = isForeground && scene == focus && states.limit == .active
                    #expect(
                        state
                            == (isActive
                                ? .foregroundActive : isForeground ? .foregroundInactive : .background))
                }
            }
        }
    }
}
