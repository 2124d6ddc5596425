import LifeCycle
import Linux

extension RuntimeState {
    /// Whose processes are to be let go, or given something back.
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

    /// What was found of one application at the start.
    struct Found {
        let name: String
        /// nil for a name that is no number, and so none of ours.
        let number: ApplicationNumber?
        var application: RecordFile.Reading?
        var holds: RecordFile.Reading?
        /// Read where there is no record of the application.
        var resources: LeftResources?

        /// Whether it had been removed, and all that is left is to be let go and given back.
        var isRemoved: Bool { application == nil }

        /// Whom to let go, as far as either file tells.
        var holding: Holding {
            let told = Holding(holds?.record ?? Record())
            return told.with(Holding(application?.record ?? Record()))
        }

        /// Whom an application holds that is taken up: its own record says whether, and how.
        var heldFurther: Holding {
            let record = application?.record ?? Record()
            var holding = Holding(record)
            guard record.lines.contains(where: Holding.isBrief), let holds else { return holding }
            holding = holding.with(Holding(Record(holds.record.lines(of: "stopped-process"))))
            return holding
        }

        /// Whether more may be held than is told: nothing that is whole says so.
        var mayHoldMore: Bool {
            damage != nil && holding.freeze == nil && holds?.damage != nil
        }

        /// Which boot it is of, as far as that is told.
        var boot: String? {
            for reading in [application, holds] {
                if let boot = reading?.record["boot"]?.fields.first, !boot.isEmpty { return boot }
            }
            return resources?.boot
        }

        /// Whose it is, as far as that is told.
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

        /// Why nobody could make an application of it; nil where nothing is wrong with it.
        var damage: String? {
            guard let application else { return "there is no record of it" }
            if let damage = application.damage { return damage }
            let number = application.record["number"]?.fields.first ?? ""
            return number == name ? nil : "it says that it is application \(number)"
        }
    }
}
