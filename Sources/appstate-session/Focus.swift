import Windows

/// Which of several windows that claim the focus has it: each display server has a focus of its own.
struct Focus {
    private var claims: Set<UInt64> = []
    private var holder: UInt64?

    /// Takes the focus from all but the one that came to it last.
    mutating func settle(_ windows: inout [Report.Window]) {
        let claiming = windows.filter(\.observed.focused).map(\.number)
        if let newest = claiming.first(where: { !claims.contains($0) }) {
            holder = newest
        } else if holder.map({ !claiming.contains($0) }) ?? true {
            holder = claiming.first
        }
        claims = Set(claiming)
        for index in windows.indices where windows[index].number != holder {
            windows[index].observed.focused = false
        }
    }
}
