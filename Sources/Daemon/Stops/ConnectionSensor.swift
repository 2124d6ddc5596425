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
    /// On what somebody waits for a second time, by its inode: the application has run since, and has not accepted. It need
    /// not run for that again.
    private var ignored: [ApplicationNumber: Set<UInt32>] = [:]
    private let isRegistered: (ApplicationNumber) -> Bool

    private struct Watched {
        let user: UInt32
        let sockets: [ListeningSocket]
        let sources: [Source]
    }

    /// The most of one application.
    static let mostSockets = 16
    /// The most of one user: they are descriptors of ours.
    private static let mostOfUser = 128

    /// - Parameters:
    ///   - isRegistered: whether there still is one.
    ///   - found: gets an application to which somebody connects; it is not watched over any longer then.
    init(
        loop: EventLoop, isRegistered: @escaping (ApplicationNumber) -> Bool,
        found: @escaping (ApplicationNumber) -> Void
    ) {
        self.loop = loop
        self.isRegistered = isRegistered
        self.found = found
    }

    /// Watches over an application that stands.
    func watch(_ number: ApplicationNumber, of user: UInt32, _ sockets: [ListeningSocket]) {
        unwatch(number)
        let room = Self.mostOfUser - countByUser[user, default: 0]
        let full = Set(sockets.filter(\.isReadable).map(\.inode))
        // What it has accepted from meanwhile counts again.
        let former = ignored[number]?.intersection(full) ?? []
        ignored[number] = former.isEmpty ? nil : former
        let kept = Array(sockets.filter { !former.contains($0.inode) }.prefix(max(room, 0)))
        let sources = kept.compactMap { socket in
            try? loop.watch(socket.descriptor) { [weak self] _ in
                guard let self, watched[number] != nil else { return }
                unwatch(number)
                ignored = ignored.filter { isRegistered($0.key) }
                ignored[number, default: []].insert(socket.inode)
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
