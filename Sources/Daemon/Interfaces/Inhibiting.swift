import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux

/// `Inhibit`: decode, ask, reply.
extension Daemon {
    func inhibit() -> Method {
        Method(
            ApplicationMethod.inhibit, in: [("who", "s"), ("why", "s")], out: [("inhibitor", "h")]
        ) { [unowned self] call in
            let who = try call.message.readString()
            let why = try call.message.readString()
            let (application, connection) = try access.managedApplication(call)
            let end = Descriptor(owning: try inhibit(application, who, why, by: connection))
            try call.reply { message throws(BusFailure) in try message.append(descriptor: end.rawValue) }
        }
    }

    /// - Returns: the client's end, which the caller closes.
    private func inhibit(
        _ application: Application, _ who: String, _ why: String, by connection: Connection
    ) throws(MethodError) -> Int32 {
        for (name, text) in [("who", who), ("why", why)] {
            if text.isEmpty { throw MethodError(.invalidArgs, "\(name) is empty") }
            try checkName(text, name)
        }
        try checkSubscriberRoom(of: connection.user)
        let added: (id: UInt64, end: Int32)
        do {
            added = try openInhibitors.add(to: application.number, of: connection.user)
        } catch let failure as KernelFailure where failure.isExhaustion {
            throw .exhausted(failure)
        } catch {
            throw MethodError(.failed, "\(error)")
        }
        do throws(MethodError) {
            try perform(.inhibit(application.number, Application.Inhibitor(added.id, who: who, why: why)))
        } catch {
            Glibc.close(added.end)
            throw error
        }
        return added.end
    }
}
