import AppStateContract
import LifeCycle

/// The life cycle and the facts that wait for it. This is the only part of the daemon that the drivers know.
final class Core {
    /// Only the daemon's step changes it.
    var machine: Machine
    /// Facts in the order in which they were reported.
    var facts: [Fact] = []
    /// `launch` and `relaunch`, to be carried out once the step is over.
    var launches: [Effect] = []
    /// Called after a fact was reported.
    var wake: () -> Void = {}

    init(settings: Settings) {
        machine = Machine(settings: settings)
    }

    func report(_ fact: Fact) {
        facts.append(fact)
        wake()
    }

    func application(_ number: ApplicationNumber) -> Application? { machine.applications[number] }
}
