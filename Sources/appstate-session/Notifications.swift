import AppStateBus
import AppStateContract
import Desktop
import Systemd

/// Shows notifications through the desktop's service (Desktop Notifications Specification 1.2), and reports what their
/// user chooses.
final class Notifier {
    struct Notification {
        var summary: String
        var body = ""
        var icon: String?
        /// The key and the label of each button.
        var actions: [(key: String, label: String)] = []
    }

    /// What the user has chosen, with the token that lets the desktop give a new window the focus; nil: the notification
    /// was closed, or could not be shown.
    typealias Outcome = (key: String, token: String?)?

    private struct Shown {
        let finish: (Outcome) -> Void
        var token: String?
    }

    private let journal: Journal
    private var bus: Bus?
    private var service: BusPeer?
    private var shown: [UInt32: Shown] = [:]
    private var calls: [UInt64: Slot] = [:]
    private var lastCall: UInt64 = 0

    private static let name = "org.freedesktop.Notifications"
    private static let path = "/org/freedesktop/Notifications"

    init(session: SessionBus, journal: Journal) throws(BusFailure) {
        self.journal = journal
        try session.follow { [weak self] in self?.use($0) }
    }

    /// Shows a notification. The service is started if the bus can do that.
    ///
    /// - Parameter finish: called once.
    func show(_ notification: Notification, finish: @escaping (Outcome) -> Void) {
        guard let bus else { return finish(nil) }
        lastCall += 1
        let number = lastCall
        do throws(BusFailure) {
            let call = try bus.newCall(
                destination: Self.name, path: Self.path, interface: Self.name, member: "Notify")
            try call.append("appstated")
            // It replaces no other.
            try call.append(UInt32(0))
            try call.append(notification.icon ?? "")
            try call.append(notification.summary)
            try call.append(notification.body)
            try call.append(strings: notification.actions.flatMap { [$0.key, $0.label] })
            try call.appendDictionary([])
            // The service decides how long it is shown.
            try call.append(Int32(-1))
            calls[number] = try bus.callAsync(call) { [unowned self] reply in
                calls[number] = nil
                guard !reply.isError, let id = try? reply.readUInt32() else {
                    journal.log(.info, "a notification cannot be shown: \(reply.error?.message ?? "no id")")
                    return finish(nil)
                }
                shown[id] = Shown(finish: finish)
            }
        } catch {
            journal.log(.info, "a notification cannot be shown: \(error)")
            finish(nil)
        }
    }

    private func use(_ bus: Bus?) {
        finishAll()
        (self.bus, service, calls) = (bus, nil, [:])
        guard let bus else { return }
        let service = BusPeer(Self.name, bus: bus) { [journal] in
            journal.log(.notice, "the session bus does not report on \(Self.name): \($0)")
        }
        self.service = service
        service.onOwnerChange { [unowned self] in finishAll() }
        do throws(BusFailure) {
            try onSignal("ActivationToken", of: service) { [unowned self] id, message in
                shown[id]?.token = try message.readString()
            }
            try onSignal("ActionInvoked", of: service) { [unowned self] id, message in
                let key = try message.readString()
                guard let chosen = shown.removeValue(forKey: id) else { return }
                chosen.finish((key, chosen.token))
                // Not every service closes it.
                let close = try bus.newCall(
                    destination: Self.name, path: Self.path, interface: Self.name,
                    member: "CloseNotification")
                try close.append(id)
                try bus.send(close)
            }
            try onSignal("NotificationClosed", of: service) { [unowned self] id, _ in
                shown.removeValue(forKey: id)?.finish(nil)
            }
            try service.start()
        } catch {
            journal.log(.debug, "\(error)")
        }
    }

    private func onSignal(
        _ member: String, of service: BusPeer, _ handler: @escaping (UInt32, borrowing Message) throws -> Void
    ) throws(BusFailure) {
        try service.onSignal("path='\(Self.path)',interface='\(Self.name)',member='\(member)'") { message in
            if let id = try? message.readUInt32() { try? handler(id, message) }
        }
    }

    private func finishAll() {
        let all = shown.values
        shown = [:]
        for shown in all { shown.finish(nil) }
    }
}

/// Tells the user which applications the daemon has ended, because memory was short or because they did not respond,
/// and opens them again.
///
/// One notification is about all that have ended. It waits until memory is no longer short and the screen is unlocked.
final class EndNotices {
    fileprivate struct Ended {
        let id: String
        /// Nil: it was ended because it did not respond.
        let bytes: UInt64?
        let hadUnsavedChanges: Bool
    }

    private let loop: EventLoop
    private let journal: Journal
    private let notifier: Notifier
    private let entries: DesktopEntries
    private let session: String?
    private var isWanted = true
    private var ended: [Ended] = []
    private var earliest: UInt64 = 0
    private var timer: Timer?
    private var bus: Bus?
    private var pressure: PropertyWatch?
    /// Nil: nothing waits for it.
    private var lock: PropertyWatch?
    private var launches: [String: Slot] = [:]

    /// In microseconds.
    private static let pause: UInt64 = 10_000_000
    /// Services show a handful of buttons.
    private static let mostButtons = 3
    /// - Parameter session: the session whose applications count; nil: it is not known, and all of them count.
    init(
        loop: EventLoop, journal: Journal, notifier: Notifier, entries: DesktopEntries, session: String?
    ) throws(BusFailure) {
        self.loop = loop
        self.journal = journal
        self.notifier = notifier
        self.entries = entries
        self.session = session
        timer = try loop.timer { [unowned self] in proceed() }
    }

    /// Takes `Notify=`.
    func configure(isWanted: Bool) {
        self.isWanted = isWanted
        if !isWanted { (ended, lock) = ([], nil) }
    }

    /// - Parameters:
    ///   - bus: the system bus, on a connection that is subscribed to the daemon.
    ///   - deaf: called if the bus refuses a match rule for the daemon.
    func start(on bus: Bus, deaf: @escaping (MethodError) -> Void) throws(BusFailure) {
        stop()
        self.bus = bus
        pressure = try PropertyWatch(
            ManagerProperty.memoryPressure.rawValue, of: BusNames.manager, at: BusNames.root,
            service: BusNames.service, bus: bus,
            rule: "path='\(BusNames.root)',interface='\(BusNames.manager)',"
                + "member='\(ManagerSignal.memoryPressureChanged.rawValue)'",
            failed: deaf, changed: { [unowned self] in proceed() })
    }

    /// What has not been shown yet is shown later.
    func stop() { (bus, pressure, lock, launches) = (nil, nil, nil, [:]) }

    /// Takes an application that was ended.
    ///
    /// - Parameter bytes: what its end has freed; nil: it was ended because it did not respond.
    func note(_ id: String, _ bytes: UInt64?, _ details: [(key: String, value: Variant)]) {
        func has(_ detail: EndDetail, _ value: Variant) -> Bool {
            details.contains { $0.key == detail.rawValue && $0.value == value }
        }
        let isElsewhere =
            session.map { session in
                details.contains { $0.key == EndDetail.session.rawValue && $0.value != .string(session) }
            } ?? false
        guard isWanted, !isElsewhere, !has(.relaunch, .bool(true)) else { return }
        ended.append(
            Ended(id: id, bytes: bytes, hadUnsavedChanges: has(.unsavedChanges, .bool(true))))
        proceed()
    }

    private func proceed() {
        guard let bus, !ended.isEmpty, pressure?.value == .string(MemoryPressure.normal.rawValue) else {
            return
        }
        guard loop.now >= earliest else {
            timer?.arm(at: earliest)
            return
        }
        // The session of the caller, or else its user's display session: org.freedesktop.login1(5).
        let login = "org.freedesktop.login1"
        lock =
            lock
            ?? (try? PropertyWatch(
                "LockedHint", of: login + ".Session", at: "/org/freedesktop/login1/session/auto",
                service: login, bus: bus,
                rule: "path_namespace='/org/freedesktop/login1/session',"
                    + "interface='\(BusNames.properties)',member='PropertiesChanged'",
                failed: { [journal] in journal.log(.notice, "the screen lock is not watched: \($0)") },
                changed: { [unowned self] in proceed() }))
        guard let lock, lock.isKnown, lock.value != .bool(true) else { return }
        self.lock = nil
        show()
    }

    private func show() {
        let ended = ended
        self.ended = []
        earliest = loop.now + Self.pause
        let found = ended.map { entries.entry($0.id) }
        func name(_ index: Int) -> String { found[index]?.name ?? ended[index].id }
        var notification = Notifier.Notification(summary: "")
        if ended.count == 1 {
            let why = ended[0].bytes == nil ? "because it did not respond" : "to free memory"
            notification.summary = "\(name(0)) was closed \(why)"
            notification.body = ended[0].sentence
        } else {
            let isMemory = ended.allSatisfy { $0.bytes != nil }
            notification.summary =
                "\(ended.count) applications were closed" + (isMemory ? " to free memory" : "")
            notification.body =
                ended.indices.map { "\(name($0)): \(ended[$0].phrase)" }
                .joined(separator: "\n").withoutMarkup
        }
        notification.icon = found.lazy.compactMap { $0?.icon }.first { !$0.isEmpty }
        for index in ended.indices {
            let key = ended[index].id
            guard found[index] != nil, notification.actions.count < Self.mostButtons,
                !notification.actions.contains(where: { $0.key == key })
            else { continue }
            let label = ended.count == 1 ? "Open again" : "Open \(name(index)) again"
            notification.actions.append((key, label))
        }
        notifier.show(notification) { [weak self] outcome in
            if let outcome { self?.open(outcome.key, outcome.token) }
        }
    }

    /// The daemon passes the application what an earlier run has saved.
    private func open(_ id: String, _ token: String?) {
        guard let bus else { return tellFailure(of: id, "the daemon cannot be reached") }
        do throws(BusFailure) {
            let call = try bus.newCall(ManagerMethod.launch)
            try call.append(id)
            try call.appendDictionary(token.map { [(LaunchKey.activationToken.rawValue, .string($0))] } ?? [])
            launches[id] = try bus.callAsync(call, timeout: 120_000_000) { [unowned self] reply in
                launches[id] = nil
                if let error = reply.error { tellFailure(of: id, error.message) }
            }
        } catch {
            tellFailure(of: id, "\(error)")
        }
    }

    private func tellFailure(of id: String, _ why: String) {
        journal.log(.notice, "\(id) cannot be opened again: \(why)")
        let name = entries.entry(id)?.name ?? id
        notifier.show(
            Notifier.Notification(summary: "\(name) cannot be opened", body: why.withoutMarkup)
        ) { _ in }
    }
}

extension EndNotices.Ended {
    /// What it held, and what was lost: after its name.
    fileprivate var phrase: String {
        [bytes.map(Self.size) ?? "did not respond", hadUnsavedChanges ? "unsaved changes" : nil]
            .compactMap(\.self).joined(separator: ", ")
    }

    /// The same as sentences.
    fileprivate var sentence: String {
        let held = bytes.map { "It held \(Self.size($0)). " } ?? ""
        return held
            + (hadUnsavedChanges
                ? "It had unsaved changes." : "It had no unsaved changes, as far as is known.")
    }

    private static func size(_ bytes: UInt64) -> String {
        let mebibytes = bytes >> 20
        if mebibytes < 1 { return "\(bytes >> 10) KiB" }
        if mebibytes < 1_024 { return "\(mebibytes) MiB" }
        return "\(mebibytes / 1_024).\(mebibytes % 1_024 * 10 / 1_024) GiB"
    }
}

extension String {
    /// Some services take the body for markup.
    var withoutMarkup: String {
        map { ["&": "&amp;", "<": "&lt;", ">": "&gt;"][$0] ?? String($0) }.joined()
    }
}
