import LifeCycle

/// The objections as reporters reported them, to verify the machine's bookkeeping.
struct ToldObjections {
    struct Entry {
        let connection: ConnectionName
        let user: UInt32
        let lineage: [ProcessID]
        let reason: String
    }

    private(set) var entries: [Entry] = []

    mutating func replace(by connection: ConnectionName, _ new: [Entry]) {
        entries.removeAll { $0.connection == connection }
        entries += new
    }

    mutating func processEnded(_ process: ProcessID) { entries.removeAll { $0.lineage.first == process } }

    /// Only applications are recorded, with their objections.
    mutating func forgetUnowned(_ world: World) { entries = entries.filter { owner($0, world) != nil } }

    func reasons(_ number: ApplicationNumber, _ world: World) -> [String] {
        Set(entries.filter { owner($0, world) == number }.map(\.reason)).sorted()
    }

    private func owner(_ entry: Entry, _ world: World) -> ApplicationNumber? {
        for process in entry.lineage {
            guard let number = world.numbers[process] else { continue }
            return entry.user == 0 || entry.user == world.told[number]?.user ? number : nil
        }
        return nil
    }
}
