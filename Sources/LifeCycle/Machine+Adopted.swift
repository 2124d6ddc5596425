import AppStateContract

/// A process's own registration replaces an application that another program registered on its own
/// initiative, in one step (§ 2). In between, its windows, their focus and its exemptions never lack an
/// application, and never pass to another one.
extension Machine {
    /// The application that a registration replaces; nil: there is none. Throws if it must not be replaced.
    func adopted(replacedBy registration: Registration) throws(Refusal) -> Application? {
        guard let number = numbers[registration.process], let former = applications[number] else {
            return nil
        }
        // If a process registers under an id other than the one of its launch, this also begins a new
        // application.
        guard former.isAdopted || former.awaitsOwnRegistration, registration.byItself else {
            throw .alreadyRegistered(registration.process, number)
        }
        return former
    }

    /// It ends as if by `Unregister`. The facts about its process are kept for the successor.
    mutating func vacate(_ former: Application) {
        letGo(former)
        announceEnd(of: former, .request)
        strike(former)
        step.effects.append(.removed(former.number, .unregistered))
    }

    /// Continues all of its processes that we have stopped.
    mutating func letGo(_ application: Application) {
        var last = application
        last.order(.wanted(.run, .request), &step)
    }
}
