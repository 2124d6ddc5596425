import AppStateBus
import Desktop
import Glibc
import Linux
import Systemd
import Windows

/// Watches which processes own well-known names on the session bus: a program that calls such a name waits for its
/// owner.
///
/// Calls to a name could be seen only by reading everything that the bus carries. So each name counts that exists for
/// others to call. Names through which an application is only started and remote-controlled do not count
/// (`SessionName.isService`).
///
/// This is done only while calls are not seen.
final class SessionNames: Watcher {
    private let session: SessionBus
    private let journal: Journal
    private let tell: (Set<Int32>) -> Void
    private let classifier: SessionName
    private var isNeeded = false
    private var bus: Bus?
    /// All names that existed at first are known.
    private var isComplete = false
    private var isListed = false
    private var owners: [String: Int32] = [:]
    /// The questions about the processes of names, by name.
    private var questions: [String: Slot] = [:]
    private var listing: Slot?
    private var changes: Slot?

    /// A session has a few dozen names.
    private static let mostNames = 512

    /// - Parameters:
    ///   - session: the session bus.
    ///   - tell: gets the owners' processes, whenever they may have changed.
    init(
        session: SessionBus, journal: Journal, entries: DesktopEntries,
        tell: @escaping (Set<Int32>) -> Void
    ) throws(BusFailure) {
        self.session = session
        self.journal = journal
        classifier = SessionName(entries: entries)
        self.tell = tell
        try session.follow { [weak self] in self?.use($0) }
    }

    func follow(_ situation: Situation) {
        guard isNeeded == situation.seesCalls else { return }
        isNeeded = !situation.seesCalls
        use(try? session.connection())
        if !isNeeded { tell([]) }
    }

    // MARK: The bus

    private func use(_ bus: Bus?) {
        (isComplete, isListed, owners, questions) = (false, false, [:], [:])
        (listing, changes) = (nil, nil)
        self.bus = isNeeded ? bus : nil
        guard let bus = self.bus else { return }
        do throws(BusFailure) {
            // The watch comes before the list: a change in between is seen twice rather than never.
            changes = try bus.watchOwner(
                failed: { [unowned self] in
                    journal.log(.notice, "names on the session bus are not watched: \($0)")
                }, handler: { [unowned self] name, owner in take(name, isOwned: owner != nil) })
            listing = try bus.callAsync(try bus.newDriverCall("ListNames")) { [unowned self] reply in
                for name in (try? reply.readStrings()) ?? [] { take(name, isOwned: true) }
                isListed = true
                publish()
            }
        } catch {
            // The connection is lost, which is handled elsewhere.
            journal.log(.debug, "\(error)")
        }
    }

    // MARK: Names

    private func take(_ name: String, isOwned: Bool) {
        guard let bus, !name.hasPrefix(":") else { return }
        // An open question about the former owner is no longer of interest.
        questions[name] = nil
        if owners.removeValue(forKey: name) != nil { publish() }
        guard isOwned, owners.count + questions.count < Self.mostNames, classifier.isService(name) else {
            return
        }
        do throws(BusFailure) {
            questions[name] = try bus.askProcess(of: name) { [unowned self] pid in
                questions[name] = nil
                // The agent has a name itself, as a backend of the portal.
                if pid != getpid() { owners[name] = pid }
                publish()
            }
        } catch {
            journal.log(.debug, "\(error)")
        }
    }

    private func publish() {
        // Questions that are open when the connection is lost are answered, too, with errors.
        guard bus?.isOpen == true else { return }
        if !isComplete {
            guard isListed, questions.isEmpty else { return }
            isComplete = true
        }
        tell(Set(owners.values))
    }
}

/// The purpose of a well-known name on the session bus.
struct SessionName {
    private let entries: DesktopEntries

    init(entries: DesktopEntries) { self.entries = entries }

    /// Whether other programs may wait for the owner of a name.
    ///
    /// The name of an application itself does not count. An application is started, raised and identified by this name,
    /// which is a desktop entry's id or begins with one (Desktop Entry Specification, "D-Bus Activation"). If it
    /// counted, no application of GLib's or KDE's would ever be suspended. The name of a media player's remote control
    /// (MPRIS) does not count either: while the player plays, that is an objection.
    func isService(_ name: String) -> Bool {
        guard name != Bus.driver, !name.hasPrefix("org.mpris.MediaPlayer2.") else { return false }
        var id = name[...]
        // `org` or `org.example` says too little about the owner of a name.
        while id.split(separator: ".").count > 2 {
            if entries.command(of: String(id)) != nil { return false }
            guard let end = id.lastIndex(where: { $0 == "." || $0 == "-" || $0 == "_" }) else { break }
            id = id[..<end]
        }
        return true
    }
}
