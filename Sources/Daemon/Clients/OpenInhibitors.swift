import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux

/// The inhibitors that clients hold (`Inhibit`), each by one end of a pipe. Nothing is ever written to it. When a client
/// and all processes that have inherited its descriptor have closed theirs, ours reports an error. When ours is closed,
/// theirs is at the end of file.
final class OpenInhibitors {
    private final class Inhibitor {
        let application: ApplicationNumber
        /// The user of the client.
        let user: UInt32
        let end: Descriptor
        var watch: Source?

        init(_ application: ApplicationNumber, _ user: UInt32, _ end: consuming Descriptor) {
            self.application = application
            self.user = user
            self.end = end
        }

        deinit { watch?.cancel() }
    }

    private let loop: EventLoop
    private let closed: (ApplicationNumber, UInt64) -> Void
    private var open: [UInt64: Inhibitor] = [:]
    private var last: UInt64 = 0

    /// - Parameter closed: called when the client has closed its end.
    init(loop: EventLoop, closed: @escaping (ApplicationNumber, UInt64) -> Void) {
        self.loop = loop
        self.closed = closed
    }

    func count(of user: UInt32) -> Int { open.values.count { $0.user == user } }

    /// - Returns: the number of the inhibitor, and the client's end, which the caller closes.
    func add(to application: ApplicationNumber, of user: UInt32) throws -> (id: UInt64, end: Int32) {
        let pipe = try Descriptor.pipe()
        let theirs = Descriptor(owning: pipe.reading)
        let inhibitor = Inhibitor(application, user, Descriptor(owning: pipe.writing))
        last += 1
        let id = last
        inhibitor.watch = try loop.watch(inhibitor.end.rawValue, for: []) { [unowned self] _ in
            close(id)
            closed(application, id)
        }
        open[id] = inhibitor
        return (id, theirs.release())
    }

    func close(_ id: UInt64) { open[id] = nil }

    /// The application has ended.
    func close(of application: ApplicationNumber) {
        for (id, inhibitor) in open where inhibitor.application == application { close(id) }
    }
}
