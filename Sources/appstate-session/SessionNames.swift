import AppStateBus
import Windows

/// Watches who owns well-known names on the session bus: who calls such a name waits for its owner.
///
/// Whether somebody calls it is not to be seen without reading all that the bus carries, so each name counts that is
/// there for others to call, and those do not by which an application is only started and remote-controlled
/// (`SessionName.isService`).
final class SessionNames {
    private let bus: Bus
    private let journal: Journal
    private let tell: (Set<Int32>) -> Void
    private var classifier: SessionName
    private var owners: [String: Int32] = [:]
    /// The questions whose a name is.
    private var questions: [String: Slot] = [:]
    private var listing: Slot?
    private var changes: Slot?

    /// A session has a few dozen.
    private static let mostNames = 512

    /// - Parameters:
    ///   - address: of the session bus.
    ///   - tell: gets the owners' processes, whenever they may be others.
    init(
        address: String, loop: EventLoop, journal: Journal, classifier: SessionName = SessionName(),
        tell: @escaping (Set<Int32>) -> Void
    ) throws(BusFailure) {
        self.journal = journal
        self.classifier = classifier
        self.tell = tell
        bus = try Bus.open(address: address)
        try bus.attach(to: loop)
        try bus.onDisconnect { [unowned self] in
            journal.log(.notice, "the connection to the session bus is lost")
            owners = [:]
            tell([])
        }
        // First the changes, then what there is: what changes in between is seen twice rather than never.
        changes = try bus.watchOwner { [unowned self] name, owner in take(name, isOwned: owner != nil) }
        listing = try bus.callAsync(try driverCall("ListNames")) { [unowned self] reply in
            for name in (try? reply.readStrings()) ?? [] { take(name, isOwned: true) }
        }
    }

    private func take(_ name: String, isOwned: Bool) {
        guard !name.hasPrefix(":") else { return }
        // What was asked of the owner before this one is not of interest any more.
        questions[name] = nil
        if owners.removeValue(forKey: name) != nil { publish() }
        guard isOwned, owners.count + questions.count < Self.mostNames, classifier.isService(name) else {
            return
        }
        do throws(BusFailure) {
            let message = try driverCall("GetConnectionUnixProcessID")
            try message.append(name)
            questions[name] = try bus.callAsync(message) { [unowned self] reply in
                questions[name] = nil
                guard let pid = (try? reply.readUInt32()).flatMap(Int32.init(exactly:)), pid > 0 else {
                    return
                }
                owners[name] = pid
                publish()
            }
        } catch {
            journal.log(.debug, "\(error)")
        }
    }

    private func publish() { tell(Set(owners.values)) }

    private func driverCall(_ member: String) throws(BusFailure) -> Message {
        try bus.newCall(
            destination: Bus.driver, path: "/org/freedesktop/DBus", interface: Bus.driver, member: member)
    }
}

/// What a well-known name on the session bus is there for.
struct SessionName {
    private var entries: DesktopEntries

    init(entries: DesktopEntries = DesktopEntries()) { self.entries = entries }

    /// Whether others may wait for its owner.
    ///
    /// Not the name of an application itself, by which it is started, raised and told apart: a desktop entry's id, or
    /// one that begins with it (Desktop Entry Specification, "D-Bus Activation"); else no application of GLib's or
    /// KDE's would ever be suspended. Nor a media player's remote control (MPRIS): while it plays, it is exempt for that.
    mutating func isService(_ name: String) -> Bool {
        guard name != "org.freedesktop.DBus", !name.hasPrefix("org.mpris.MediaPlayer2.") else { return false }
        var id = name[...]
        // Not `org` or `org.example`: too little to say whose a name is.
        while id.split(separator: ".").count > 2 {
            if entries.command(of: String(id)) != nil { return false }
            guard let end = id.lastIndex(where: { $0 == "." || $0 == "-" || $0 == "_" }) else { break }
            id = id[..<end]
        }
        return true
    }
}
