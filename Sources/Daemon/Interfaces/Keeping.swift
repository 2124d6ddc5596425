import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux

private typealias Name = ApplicationMethod

/// The data that is kept about applications: saved state and history.
extension Daemon {
    /// For the application's own processes only.
    func stateMethods() -> [Method] {
        [
            Method(Name.saveState, in: [("state", "ay")], limit: .max) { [unowned self] call in
                let bytes = try call.message.readBytes()
                let (application, _) = try access.ownApplication(call)
                guard bytes.count <= Keeper.mostBytesInMessage else {
                    throw MethodError(
                        .tooLarge,
                        "The state has \(bytes.count) bytes, more than \(Keeper.mostBytesInMessage): use SaveStateFile"
                    )
                }
                try save(.bytes(bytes), of: application, call)
            },
            Method(Name.saveStateFile, in: [("state", "h")]) { [unowned self] call in
                let descriptor = Descriptor(owning: try call.message.readOwnedDescriptor())
                let (application, _) = try access.ownApplication(call)
                let memory = try sealedMemory(descriptor)
                try save(.memory(SharedMemory(memory)), of: application, call)
            },
            Method(Name.loadState, out: [("state", "ay")]) { [unowned self] call in
                try load(call, asFile: false)
            },
            Method(Name.loadStateFile, out: [("state", "h")]) { [unowned self] call in
                try load(call, asFile: true)
            },
        ]
    }

    func getHistory() -> Method {
        Method(ManagerMethod.getHistory, in: [("app_id", "s")], out: [("history", "a(tssi)")]) {
            [unowned self] call in
            let id = try call.message.readString()
            let connection = try access.unconfinedCaller(of: call.member)
            let exits = try history(of: id, connection)
            try call.reply { message throws(BusFailure) in try message.append(exits) }
        }
    }

    func listHistory() -> Method {
        Method(ManagerMethod.listHistory, in: [("options", "a{sv}")], out: [("app_ids", "as")]) {
            [unowned self] call in
            let options = try call.message.readDictionary()
            let connection = try access.unconfinedCaller(of: call.member)
            var user = connection.user
            for (key, value) in options {
                guard key == HistoryKey.user else {
                    throw MethodError(.invalidArgs, "ListHistory has no option \"\(key.shortened)\"")
                }
                user = try value.uint32(key)
            }
            guard connection.mayManage(user: user) else {
                throw MethodError(
                    .accessDenied, "User \(connection.user) may not see the history of user \(user)")
            }
            let ids = try openKeeper().applicationsWithHistory(of: user).map(\.rawValue).sorted()
            try call.reply { message throws(BusFailure) in try message.append(strings: ids) }
        }
    }

    private func history(
        of id: String, _ connection: Connection
    ) throws(MethodError) -> [KeptApplication.Exit] {
        guard let id = ApplicationID(id) else { throw .notAnID(id) }
        return try openKeeper().history(of: KeptID(user: connection.user, application: id))
    }

    func forgetApplication() -> Method {
        Method(ManagerMethod.forgetApplication, in: [("app_id", "s")]) { [unowned self] call in
            let id = try call.message.readString()
            let connection = try access.unconfinedCaller(of: call.member)
            try forget(id, connection, call)
        }
    }

    private func forget(
        _ id: String, _ connection: Connection, _ call: borrowing Call
    ) throws(MethodError) {
        guard let id = ApplicationID(id) else { throw .notAnID(id) }
        let keeper = try openKeeper()
        let kept = KeptID(user: connection.user, application: id)
        guard let runs = keeper.runs(of: kept) else {
            throw MethodError(.noSuchApplication, "Nothing is kept about \(id) of user \(kept.user)")
        }
        guard runs == 0 else {
            throw MethodError(
                .alreadyRegistered,
                "An application \(id) is registered: it can be forgotten once it has ended")
        }
        try perform(.cancelLaunch(kept.owner, name: nil))
        keeper.forget(kept, call.deferred())
    }

    private func save(
        _ content: SavedContent, of application: Application, _ call: borrowing Call
    ) throws(MethodError) {
        let (keeper, kept) = try keeper(of: application)
        let limit = core.machine.settings.limits.savedStatePerUser
        try keeper.checkRoom(for: content, of: kept, limit: limit)
        keeper.save(content, of: kept, call.deferred())
    }

    private func load(_ call: borrowing Call, asFile: Bool) throws(MethodError) {
        let (application, _) = try access.ownApplication(call)
        let (keeper, kept) = try keeper(of: application)
        if asFile { keeper.open(kept, call.deferred()) } else { keeper.load(kept, call.deferred()) }
    }

    func openKeeper() throws(MethodError) -> Keeper {
        guard let keeper else { throw Self.nothingIsKept }
        guard keeper.isOpen else {
            throw .failed(
                "The disk has not answered since appstated was started: nothing is kept until it does")
        }
        return keeper
    }

    func keeper(of application: Application) throws(MethodError) -> (Keeper, KeptID) {
        let keeper = try openKeeper()
        guard let kept = table[application.number]?.kept else {
            throw MethodError(
                .accessDenied,
                "Nothing is saved under the id \(application.id): its process runs in a sandbox with another id, "
                    + "or too many applications of its user have saved their state")
        }
        return (keeper, kept)
    }

    private func sealedMemory(_ descriptor: consuming Descriptor) throws(MethodError) -> SealedMemory {
        do {
            return try SealedMemory(adopting: descriptor)
        } catch  where error.isExhaustion {
            throw .exhausted(error)
        } catch {
            throw MethodError(
                .invalidArgs,
                "SaveStateFile takes a memory file that is sealed against writing, growing, shrinking and sealing: \(error)"
            )
        }
    }

    private static let nothingIsKept = MethodError(
        .notSupported, "appstated saves nothing: it was started without STATE_DIRECTORY")

    // MARK: Ownership

    /// Whether the data that is kept under an id, and the items that are sent to it, belong to this process.
    /// A sandboxed process chooses its own name, so it is identified by the information from its launcher and
    /// the kernel.
    func isKnown(_ pid: Int32, by id: ApplicationID) -> Bool {
        guard let own = try? proc.status(getpid()), let status = try? proc.status(pid),
            let sandbox = try? proc.sandbox(of: pid)
        else { return false }
        if let unit = sandbox.flatpak { return ApplicationUnit(inPath: unit)?.application == id.rawValue }
        if sandbox.snap != nil { return proc.snapApplication(of: pid) == id.rawValue }
        return status.namespaceDepth <= own.namespaceDepth
    }
}

extension MethodError {
    static func notAnID(_ id: String) -> MethodError {
        MethodError(.invalidArgs, "app_id \"\(id.shortened)\" is not [A-Za-z0-9._-]{1,255}")
    }
}

extension Message {
    fileprivate borrowing func append(_ exits: [KeptApplication.Exit]) throws(BusFailure) {
        try open(.array, "(tssi)")
        for exit in exits { try append(exit) }
        try close()
    }

    private borrowing func append(_ exit: KeptApplication.Exit) throws(BusFailure) {
        let (state, status) = exit.shown
        try open(.struct, "tssi")
        try append(exit.time)
        try append(exit.reason.rawValue)
        try append(state)
        try append(status)
        try close()
    }
}

extension KeptApplication.Exit {
    /// The values, with unknown ones as the D-Bus API writes them.
    fileprivate var shown: (state: String, status: Int32) { (state?.rawValue ?? "", status ?? -1) }
}
