import AppStateBus
import AppStateContract
import Glibc
import TestSupport

extension Client {
    typealias QueuedCall = (name: String, interface: String, arguments: [String])
    /// The name of the error, or an empty text; the value that a property's `Get` has returned.
    typealias Reply = (name: String, error: String, value: Variant?)

    /// Makes the calls of an application's object arrive at the daemon together, and returns the replies in the order in
    /// which they came.
    func replies(
        to calls: [QueuedCall], of path: String, from daemon: TestDaemon, _ meanwhile: () -> Void = {}
    ) throws -> [Reply] {
        var replies: [Reply] = []
        var slots: [Slot] = []
        daemon.process.kill(SIGSTOP)
        for call in calls {
            let message = try bus.newCall(
                destination: BusNames.service, path: path, interface: call.interface, member: call.name)
            for argument in call.arguments { try message.append(argument) }
            slots.append(
                try bus.callAsync(message, timeout: .max) { reply in
                    let value = try? reply.readVariant()
                    replies.append((call.name, reply.error.map { $0.name } ?? "", value))
                })
        }
        // The bus has passed the calls on before it answers this.
        _ = try bus.id()
        meanwhile()
        daemon.process.kill(SIGCONT)
        try wait("all answers") { replies.count == calls.count }
        return replies
    }
}
