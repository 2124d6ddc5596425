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
/// After a bus was lost, the agent looks for it again. Until the bus has answered or is given up, the former owners
/// count.
final class SessionNames {
    private let address: String
    private let loop: EventLoop
    private let journal: Journal
    private let tell: (Set<Int32>) -> Void
    private let classifier: SessionName
    private var bus: Bus?
    private var isLost = true
    /// All names that existed at first are known.
    private var isComplete = false
    private var isListed = false
    private var owners: [String: Int32] = [:]
    /// The questions about the processes of names, by name.
    private var questions: [String: Slot] = [:]
    private var listing: Slot?
    private var changes: Slot?
    private var reconnection: Retry?
    /// Reports that the bus's socket may have appeared, while there is no bus.
    private var arrival: (watch: PathWatch, source: Source)?

    /// A session has a few dozen names.
    private static let mostNames = 512

    /// - Parameters:
    ///   - address: the address of the session bus.
    ///   - tell: gets the owners' processes, whenever they may have changed.
    init(
        address: String, loop: EventLoop, journal: Journal, classifier: SessionName,
        tell: @escaping (Set<Int32>) -> Void
    ) throws(BusFailure) {
        self.address = address
        self.loop = loop
        self.journal = journal
        self.classifier = classifier
        self.tell = tell
        reconnection = try Retry(loop, after: 100_000) { [unowned self] in connect() }
        connect()
    }

    // MARK: The bus

    private func connect() {
        guard isLost else { return }
        leave()
        do throws(BusFailure) {
            let bus = try Bus.open(address: address)
            self.bus = bus
            try bus.attach(to: loop)
            try bus.onDisconnect { [unowned self] in lose("the connection is lost") }
            // The watch comes before the list: a change in between is seen twice rather than never.
            changes = try bus.watchOwner(
                failed: { [unowned self] in lose("the bus does not report changes: \($0)") },
                handler: { [unowned self] name, owner in take(name, isOwned: owner != nil) })
            listing = try bus.callAsync(try bus.newDriverCall("ListNames")) {
                [unowned self] reply in
                guard let names = try? reply.readStrings() else {
                    return lose("the bus does not list its names")
                }
                for name in names { take(name, isOwned: true) }
                isListed = true
                publish()
            }
            isLost = false
            reconnection?.hasSucceeded()
        } catch {
            journal.log(.debug, "\(error)")
            tryAgain()
        }
    }

    private func leave() {
        (isComplete, isListed, owners, questions) = (false, false, [:], [:])
        (listing, changes) = (nil, nil)
        bus = nil
    }

    /// The connection is not closed here, because this may run in one of its handlers. The next attempt closes it.
    private func lose(_ why: String) {
        guard !isLost else { return }
        isLost = true
        journal.log(.notice, "names on the session bus are not watched: \(why)")
        tryAgain()
    }

    private func tryAgain() {
        awaitArrival()
        if reconnection?.schedule() != true { tell([]) }
    }

    private func awaitArrival() {
        guard arrival == nil, let path = DisplayServer.socket(ofBus: address), path.hasPrefix("/") else {
            return
        }
        do {
            let watch = try PathWatch(path: path)
            let source = try loop.watch(watch.descriptor) { [unowned self] _ in
                watch.dispatch()
                guard isLost, access(path, F_OK) == 0 else { return }
                reconnection?.reset()
                connect()
            }
            arrival = (watch, source)
        } catch {
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
                owners[name] = pid
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
            arrival = nil
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
