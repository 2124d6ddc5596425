import AppStateBus
import Glibc
import Linux
import Windows

/// The program of the display on the session bus, to which an observer listens. Messages from other connections are
/// ignored, whatever names they own.
final class SessionPeer {
    let bus: Bus
    /// The connection of the program.
    let connection: String
    let process: Int32
    /// An eventfd(2), which is readable after `ring()`.
    var descriptor: Int32 { bell.rawValue }
    private let bell: Descriptor
    private let session: SessionBus
    private let subject: String
    /// Why nothing more is received from the program.
    private var end: String?
    private var watch: Slot?

    /// Connects, and finds the program.
    ///
    /// - Parameters:
    ///   - subject: the name of the program in messages.
    ///   - name: the well-known name of the program.
    ///   - session: the session bus.
    /// - Throws: `unreachable` if there is no bus, `unsupported` if the program is not on it.
    init(_ subject: String, name: String, session: SessionBus) throws(ObserverFailure) {
        self.subject = subject
        self.session = session
        let owner: String?
        do throws(BusFailure) {
            bus = try session.connection()
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
        do throws(KernelFailure) {
            bell = try Descriptor.eventfd(of: subject)
        } catch {
            throw .unreachable("\(error)")
        }
        do throws(BusFailure) {
            watch = try bus.watchOwner(
                of: name, failed: { [unowned self] in refused($0) },
                handler: { [unowned self] _, owner in
                    if owner != connection { finish("\(subject) has ended") }
                })
            try session.follow { [weak self] bus in
                if let self, bus !== self.bus { finish("the session bus has ended") }
            }
            // The answer to this question comes after the bus has set up the watch.
            if try bus.owner(of: name) != connection { end = "\(subject) has ended" }
        } catch {
            throw .unreachable("\(error)")
        }
    }

    /// Handles a refused match rule: the observer would get no signals of the program.
    func refused(_ error: MethodError) {
        finish("the session bus does not report on \(subject): \(error)")
    }

    private func finish(_ why: String) {
        end = why
        ring()
    }

    /// Has the observer dispatched: the program has told something.
    func ring() {
        var one: UInt64 = 1
        write(descriptor, &one, 8)
    }

    /// Handles what the program has told before the loop runs.
    func begin() throws(ObserverFailure) {
        do throws(BusFailure) {
            while try bus.process() {}
        } catch {
            throw .ended("the session bus has ended: \(error)")
        }
        try dispatch()
    }

    /// - Throws: `ended` if the bus or the program has ended, or the bus has refused a match rule for the program.
    func dispatch() throws(ObserverFailure) {
        var count: UInt64 = 0
        read(descriptor, &count, 8)
        if let end { throw .ended(end) }
    }
}
