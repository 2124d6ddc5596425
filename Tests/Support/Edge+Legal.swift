public import AppStateContract

extension Edge {
    /// Whether the life cycle contract has this edge (§ 1: "Only these edges exist").
    public var isLegal: Bool {
        switch (from, to) {
        case (.notRunning, .inactive), (.notRunning, .background),
            (.inactive, .active), (.active, .inactive),
            (.inactive, .background), (.background, .inactive),
            (.background, .suspended), (.suspended, .background),
            (.inactive, .notRunning), (.active, .notRunning),
            (.background, .notRunning), (.suspended, .notRunning):
            return true
        case (.notRunning, _), (.inactive, _), (.active, _), (.background, _), (.suspended, _):
            return false
        }
    }
}
