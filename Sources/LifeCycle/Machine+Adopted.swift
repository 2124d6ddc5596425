import AppStateContract

/// An application that somebody took in of his own accord gives way to its process's own registration, in one step
/// (§ 2): its windows, their focus and who exempts it are never nobody's in between, nor another application's.
extension Machine {
    /// The application that a registration takes the place of; nil: none is there. Throws where it may not.
    func adopted(replacedBy registration: Registration) throws(Refusal) -> Application? {
        guard let number = numbers[registration.process], let former = applications[number] else {
            return nil
        }
        // One that was launched under another id than it has itself begins anew, too.
        guard former.isAdopted || former.awaitsOwnRegistration, registration.byItself else {
            throw .alreadyRegistered(registration.process, number)
        }
        return former
    }

    /// It ends as by `Unregister`; what is known of its process waits for the successor.
    mutating func vacate(_ former: Application) {
        letGo(former)
        strike(former)
        step.effects.append(.removed(former.number, .unregistered))
    }

    /// What we have stopped of it runs on.
    mutating func letGo(_ application: Application) {
        var last = application
        last.order(.wanted(.run, .request), &step)
    }
}
