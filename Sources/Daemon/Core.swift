import AppStateContract
import LifeCycle

/// The life cycle and the facts that wait for it. This is the only part of the daemon that the drivers know.
final class Core {
    /// Only the daemon's step changes it.
    var machine: Machine
    /// In the order in which they were reported.
    var facts: [Fact] = []
    /// `launch` and `relaunch`, to be carried out once the step is over.
    var launches: [Effect] = []
    /// How many lines of the configuration were invalid when it was read last.
    var refusedLines = 0

    init(settings: Settings) {
        machine = Machine(settings: settings)
    }

    /// The step that handles it comes after the present event, or step.
    func report(_ fact: Fact) { facts.append(fact) }

    func application(_ number: ApplicationNumber) -> Application? { machine.applications[number] }
}
