import LifeCycle
import Linux

extension RuntimeState {
    /// The owner of processes that must be let go, or given something back.
    struct Owner {
        let main: ProcessIdentity
        let user: UInt32
    }

    /// What gives an application's processes their resources back.
    struct LeftResources {
        var boot: String?
        var owner: Owner?
        var entries: [String] = []
    }

    /// What was found about one application at startup.
    struct Found {
        let name: String
        /// nil for a name that is not a number, and so was not written by the daemon.
        let number: ApplicationNumber?
        var application: RecordFile.Reading?
        var holds: RecordFile.Reading?
        /// Read if there is no record of the application, or if nothing else says whose it is.
        var resources: LeftResources?

        /// Whether it had been removed, so that it only remains to let its processes go and give back what they had.
        var isRemoved: Bool { application == nil }

        /// What to let go, as far as either file says.
        var holding: Holding {
            let told = Holding(holds?.record ?? Record())
            return told.with(Holding(application?.record ?? Record()))
        }

        /// What is still held of an application that is taken up: its own record says whether, and how.
        var heldFurther: Holding {
            let record = application?.record ?? Record()
            var holding = Holding(record)
            guard record.lines.contains(where: Holding.isBrief), let holds else { return holding }
            holding = holding.with(Holding(Record(holds.record.lines(of: "stopped-process"))))
            return holding
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
            return resources?.boot
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
            if let freeze = holding.freeze { return Owner(main: freeze.main, user: freeze.user) }
            return resources?.owner
        }

        /// Why no application can be made of it; nil if nothing is wrong with it.
        var damage: String? {
            guard let application else { return "there is no record of it" }
            if let damage = application.damage { return damage }
            let number = application.record["number"]?.fields.first ?? ""
            return number == name ? nil : "its record names application \(number)"
        }
    }
}
