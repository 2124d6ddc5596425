import LifeCycle
import Linux

extension RuntimeState {
    /// The owner of processes that must be released, or whose resources must be restored.
    struct Owner {
        let main: ProcessIdentity
        let user: UInt32
    }

    /// The records about one application that were found at startup.
    struct Found {
        let name: String
        /// nil for a name that is not a number, and so was not written by the daemon.
        let number: ApplicationNumber?
        var application: RecordFile.Reading?
        var holds: RecordFile.Reading?

        /// Whether it had been removed, so that only its processes must be released.
        var isRemoved: Bool { application == nil }

        /// The holds to release, according to either file.
        var holding: Holding {
            let told = Holding(holds?.record ?? Record())
            var holding = told.with(Holding(application?.record ?? Record()))
            holding.isListLost = isListLost
            return holding
        }

        /// The application's record says that there is a list of stopped processes, but there is no undamaged one.
        private var isListLost: Bool {
            let isTold = application?.record.lines.contains { $0.key == "stopped-processes" } == true
            return isTold && (holds == nil || holds?.damage != nil)
        }

        /// The holds of an application that is taken over: its own record says whether it is held, and how.
        var heldFurther: Holding {
            let record = application?.record ?? Record()
            var holding = Holding(record)
            holding.isListLost = isListLost
            guard record.lines.contains(where: Holding.isBrief), let holds else { return holding }
            holding = holding.with(Holding(Record(holds.record.lines(of: "stopped-process"))))
            return holding
        }

        /// The application's record, for taking it over. If it says that the application is held, but the file of the
        /// holds is missing, these were lifted when there was no room to record that: it runs.
        var takenOver: Record? {
            guard var record = application?.record else { return nil }
            if holds == nil, record.lines.contains(where: Holding.isBrief) {
                record.lines.removeAll { $0.key == "hold" }
            }
            return record
        }

        /// The main process, if another process has stopped it by signal: that stop is not ours to lift. nil: none has,
        /// as far as is known.
        var spared: ProcessIdentity? {
            application?.record["foreign-stop"] == nil ? nil : owner?.main
        }

        /// Whether more may be held than is recorded: no undamaged file says so.
        var mayHoldMore: Bool {
            damage != nil && holding.freeze == nil && holds?.damage != nil
        }

        /// The boot in which it was recorded, as far as that is known.
        var boot: String? {
            for reading in [application, holds] {
                if let boot = reading?.record["boot"]?.fields.first, !boot.isEmpty { return boot }
            }
            return nil
        }

        /// The owner of its processes, as far as that is known.
        var owner: Owner? {
            if let record = application?.record,
                let main = record.understood("process", { ProcessID(&$0) }).first,
                let user = record.understood("user", { $0.number() as UInt32? }).first
            {
                return Owner(main: main.identity, user: user)
            }
            let holding = holding
            if let stop = holding.stop { return Owner(main: stop.main, user: stop.user) }
            return holding.freeze.map { Owner(main: $0.main, user: $0.user) }
        }

        /// Why it cannot be restored as an application; nil if there is no error.
        var damage: String? {
            guard let application else { return "there is no record of it" }
            if let damage = application.damage { return damage }
            let number = application.record["number"]?.fields.first ?? ""
            return number == name ? nil : "its record names application \(number)"
        }
    }
}
