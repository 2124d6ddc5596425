import AppStateBus
import Glibc
import Windows

/// The display's own program, on the session bus, where an observer listens to it. Nobody else's word is taken, whatever
/// names it has.
final class SessionPeer {
    let bus: Bus
    /// Its connection.
    let connection: String
    let process: Int32
    /// A duplicate of the bus's, which stays open when the connection is lost.
    let descriptor: Int32
    private let subject: String
    /// Why nothing more is heard of it.
    private var end: String?
    private var watch: Slot?

    /// Connects, and finds it.
    ///
    /// - Parameters:
    ///   - subject: what it is called in messages.
    ///   - name: its well-known name.
    ///   - address: of the session bus.
    /// - Throws: `unreachable` where there is no bus, `unsupported` where it is not on it.
    init(_ subject: String, name: String, address: String) throws(ObserverFailure) {
        self.subject = subject
        let owner: String?
        do throws(BusFailure) {
            bus = try Bus.open(address: address)
            // The connection is up when this has come back.
            owner = try bus.owner(of: name)
        } catch {
            throw .unreachable("\(error)")
        }
        guard let owner else { throw .unsupported("\(subject) is not on the session bus") }
        connection = owner
        do throws(BusFailure) {
            process = try bus.credentials(of: owner).pid
        } catch {
            throw .unreachable("\(error)")
        }
        descriptor = fcntl(bus.descriptor, F_DUPFD_CLOEXEC, 3)
        guard descriptor >= 0 else {
            throw .unreachable("no descriptor: \(String(cString: strerror(errno)))")
        }
        do throws(BusFailure) {
            watch = try bus.watchOwner(
                of: name, failed: { [unowned self] in refused($0) },
                handler: { [unowned self] _, owner in
                    if owner != connection { end = "\(subject) has ended" }
                })
            // What is asked now is answered after the bus has set that up.
            if try bus.owner(of: name) != connection { end = "\(subject) has ended" }
        } catch {
            throw .unreachable("\(error)")
        }
    }

    deinit { close(descriptor) }

    /// The bus does not tell of it: who listens to it is deaf.
    func refused(_ error: MethodError) {
        end = "the session bus does not tell of \(subject): \(error)"
    }

    /// Takes in all that has come.
    ///
    /// - Throws: `ended` where the bus or the program has, or the bus does not tell of it.
    func dispatch() throws(ObserverFailure) {
        do throws(BusFailure) {
            while try bus.process() {}
        } catch {
            throw .ended("the session bus has ended: \(error)")
        }
        if let end { throw .ended(end) }
    }
}
