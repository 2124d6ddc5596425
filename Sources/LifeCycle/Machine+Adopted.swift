import AppStateContract

/// An application that another program registered on its own initiative gives way to its process's own registration, in
/// one step (§ 2). Its windows, their focus and its exemptions are never without an application in between, nor do they
/// pass to another one.
extension Machine {
    /// The application that a registration replaces; nil: there is none. Throws if it must not be replaced.
    func adopted(replacedBy registration: Registration) throws(Refusal) -> Application? {
        guard let number = numbers[registration.process], let former = applications[number] else {
            return nil
        }
        // A process that was launched under another id than the one it registers begins a new application, too.
        guard former.isAdopted || former.awaitsOwnRegistration, registration.byItself else {
            throw .alreadyRegistered(registration.process, number)
        }
        return former
    }

    /// It ends as if by `Unregister`. What is known of its process is kept for the successor.
    mutating func vacate(_ former: Application) {
        letGo(former)
        strike(former)
        step.effects.append(.removed(former.number, .unregistered))
    }

    /// Lets everything of it that we have stopped run on.
    mutating func letGo(_ application: Application) {
        var last = application
        last.order(.wanted(.run, .request), &step)
    }
}
