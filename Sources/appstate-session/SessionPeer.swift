import AppStateBus
import Glibc
import Windows

/// The program of the display on the session bus, to which an observer listens. Messages from other connections are
/// ignored, whatever names they own.
final class SessionPeer {
    let bus: Bus
    /// The connection of the program.
    let connection: String
    let process: Int32
    /// A duplicate of the bus's descriptor, which stays open when the connection is lost.
    let descriptor: Int32
    private let subject: String
    /// Why nothing more is received from the program.
    private var end: String?
    private var watch: Slot?

    private static let mostAtOnce = 256

    /// Connects, and finds the program.
    ///
    /// - Parameters:
    ///   - subject: the name of the program in messages.
    ///   - name: the well-known name of the program.
    ///   - address: the address of the session bus.
    /// - Throws: `unreachable` if there is no bus, `unsupported` if the program is not on it.
    init(_ subject: String, name: String, address: String) throws(ObserverFailure) {
        self.subject = subject
        let owner: String?
        do throws(BusFailure) {
            bus = try Bus.open(address: address)
            // The connection is established when this call returns.
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
            // The answer to this question comes after the bus has set up the watch.
            if try bus.owner(of: name) != connection { end = "\(subject) has ended" }
        } catch {
            throw .unreachable("\(error)")
        }
    }

    deinit { close(descriptor) }

    /// Handles a refused match rule: the observer would get no signals of the program.
    func refused(_ error: MethodError) {
        end = "the session bus does not report on \(subject): \(error)"
    }

    /// Handles the messages that have arrived: all, unless another program floods the connection.
    ///
    /// - Throws: `ended` if the bus or the program has ended, or the bus has refused a match rule for the program.
    func dispatch() throws(ObserverFailure) {
        do throws(BusFailure) {
            var handled = 0
            while try bus.process() {
                handled += 1
                // What is still in the socket makes the descriptor readable again. What was already read does not.
                if handled >= Self.mostAtOnce, !bus.hasQueued { break }
            }
        } catch {
            throw .ended("the session bus has ended: \(error)")
        }
        if let end { throw .ended(end) }
    }
}
