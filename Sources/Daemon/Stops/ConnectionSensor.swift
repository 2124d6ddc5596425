import AppStateBus
import LifeCycle
import Linux

/// Sees that somebody connects to a local socket on which a suspended application listens (§ 5, "Thaw on demand").
///
/// We hold a copy of each such socket while the application stands, so that the kernel tells.
final class ConnectionSensor {
    private let loop: EventLoop
    private let found: (ApplicationNumber) -> Void
    private var watched: [ApplicationNumber: Watched] = [:]
    private var countByUser: [UInt32: Int] = [:]

    private struct Watched {
        let user: UInt32
        let sockets: [ListeningSocket]
        let sources: [Source]
    }

    /// The most of one application.
    static let mostSockets = 16
    /// The most of one user: they are descriptors of ours.
    private static let mostOfUser = 128

    /// - Parameter found: gets an application to which somebody connects; it is not watched over any longer then.
    init(loop: EventLoop, found: @escaping (ApplicationNumber) -> Void) {
        self.loop = loop
        self.found = found
    }

    /// Watches over an application that stands.
    func watch(_ number: ApplicationNumber, of user: UInt32, _ sockets: [ListeningSocket]) {
        unwatch(number)
        let room = Self.mostOfUser - countByUser[user, default: 0]
        let kept = Array(sockets.prefix(max(room, 0)))
        let sources = kept.compactMap { socket in
            try? loop.watch(socket.descriptor) { [weak self] _ in
                guard let self, watched[number] != nil else { return }
                unwatch(number)
                found(number)
            }
        }
        if sources.isEmpty { return }
        countByUser[user, default: 0] += kept.count
        watched[number] = Watched(user: user, sockets: kept, sources: sources)
    }

    func unwatch(_ number: ApplicationNumber) {
        guard let former = watched.removeValue(forKey: number) else { return }
        for source in former.sources { source.cancel() }
        let count = countByUser[former.user, default: 0] - former.sockets.count
        countByUser[former.user] = count > 0 ? count : nil
    }
}
