import AppStateBus
import Systemd
import Windows

/// Finds the processes that play or record sound, on whichever server listens on a socket at the time.
final class Playback: Watcher {
    private let path: String
    private let loop: EventLoop
    private let journal: Journal
    private let observe: (_ path: String) throws(ObserverFailure) -> any SoundObserver
    private let tell: (Set<Int32>) -> Void
    private var observer: (any SoundObserver)?
    private var source: Source?
    private var reconnection: Retry?

    /// - Parameters:
    ///   - path: the sound server's socket.
    ///   - observe: connects to it.
    ///   - tell: gets the processes that play or record sound, whenever they may have changed.
    init(
        path: String, loop: EventLoop, journal: Journal,
        observe: @escaping (_ path: String) throws(ObserverFailure) -> any SoundObserver,
        tell: @escaping (Set<Int32>) -> Void
    ) throws {
        self.observe = observe
        self.path = path
        self.loop = loop
        self.journal = journal
        self.tell = tell
        reconnection = try Retry(loop, after: 100_000, socket: path) { [unowned self] in connect() }
        connect()
    }

    private func connect() {
        guard observer == nil else { return }
        do {
            let observer = try observe(path)
            source = try loop.watch(observer.descriptor) { [unowned self] _ in dispatch() }
            self.observer = observer
            reconnection?.hasSucceeded()
            journal.log(.info, "watching \(observer.subject)")
        } catch {
            journal.log(.debug, "\(error)")
            // If the socket exists, no server listens, perhaps not yet: nothing announces listen(2).
            reconnection?.schedule()
        }
    }

    private func dispatch() {
        do throws(ObserverFailure) {
            try observer?.dispatch()
            if let observer { tell(observer.players) }
        } catch {
            journal.log(.notice, "\(error)")
            source?.cancel()
            source = nil
            observer = nil
            tell([])
            // The socket may belong to the service manager, and stay: the next connection then starts the next server.
            reconnection?.schedule()
        }
    }
}
