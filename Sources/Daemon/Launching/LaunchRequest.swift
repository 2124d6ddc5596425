import AppStateBus
import AppStateContract
import LifeCycle

/// The purpose for which a caller wants an application to be started or brought to the front.
struct LaunchRequest {
    var urls: [String] = []
    var launchMode = LaunchMode.foreground
    var reason = LaunchReason.user
    var payload: [String: Variant] = [:]
    /// The scene that is asked for; empty: none in particular.
    var scene = ""
    /// The token that proves the user's action to the desktop; empty: there is none.
    var activationToken = ""
    /// The id of the calling application, as determined by the daemon. nil: the caller is not an application.
    var source: ApplicationID?
    /// Whether the caller is sandboxed. Then nothing is started for it, and nothing reaches another application.
    var isConfined = false
    /// Whether it has failed if the application does not come to the front.
    var mustShow = false
    /// Whether it is of use only to a delegate. Without one, nothing is done.
    var needsDelegate = false
    /// The name of the scheduled launch that it is launched or woken for in the background; nil: none.
    var scheduledLaunch: String?

    /// Tokens, like URLs, are longer than names.
    static let longestToken = 1_024
    private static let longestScene = 255

    init() {}

    /// An activity or a message for the delegate.
    init(toDelegateFor reason: LaunchReason) {
        self.reason = reason
        needsDelegate = true
    }

    /// The options of `Activate`.
    init(toShowWith options: [(key: String, value: Variant)]) throws(MethodError) {
        mustShow = true
        for (key, value) in options {
            guard key == LaunchKey.activationToken.rawValue else {
                throw MethodError(.invalidArgs, "Activate has no option \"\(key.shortened)\"")
            }
            activationToken = try value.string(key, limit: Self.longestToken)
        }
    }

    /// The options of `Launch`, each checked: the error names an unknown key or a wrong type.
    init(_ entries: [(key: String, value: Variant)]) throws(MethodError) {
        try Variant.dictionary(of: entries).checkBody("the options")
        var given: LaunchReason?
        var seen: Set<LaunchKey> = []
        for (key, value) in entries {
            guard let known = LaunchKey(rawValue: key) else {
                throw MethodError(.invalidArgs, "Launch has no option \"\(key.shortened)\"")
            }
            guard seen.insert(known).inserted else {
                throw MethodError(.invalidArgs, "The option \"\(key)\" is given twice")
            }
            switch known {
            case .urls: urls = try value.urls(key)
            case .launchMode: launchMode = try value.choice(key)
            case .reason: given = try value.choice(key)
            case .payload:
                guard case .dictionary(let entries) = value else { throw value.wrongType(key, "a{sv}") }
                payload = entries
            case .scene: try readScene(from: value)
            case .activationToken: activationToken = try value.string(key, limit: Self.longestToken)
            }
        }
        guard scene.isEmpty || launchMode == .foreground else {
            throw MethodError(.invalidArgs, "A scene is not asked for in the background")
        }
        reason = given ?? (urls.isEmpty ? .user : .url)
        if reason == .transfer { needsDelegate = true }
        try checkDeliveries()
    }

    /// Checked before anything is done, because everything may have to wait.
    private func checkDeliveries() throws(MethodError) {
        let bytes = deliveries.reduce(0) { $0 + $1.waitingBytes }
        guard bytes <= Machine.waitingBytes else {
            throw MethodError(
                .limitsExceeded,
                "The URLs and the payload take \(bytes) bytes, more than \(Machine.waitingBytes)")
        }
    }

    /// The arguments of `Open`. Unknown options go to the application unchanged.
    init(urls: [String], options: [(key: String, value: Variant)]) throws(MethodError) {
        self.urls = try Variant.strings(urls).urls("urls")
        guard !urls.isEmpty else { throw MethodError(.invalidArgs, "There are no URLs to open") }
        let all = Variant.dictionary(of: options)
        try all.checkBody("the options")
        if case .dictionary(let entries) = all { payload = entries }
        if let token = payload.removeValue(forKey: LaunchKey.activationToken.rawValue) {
            activationToken = try token.string(LaunchKey.activationToken.rawValue, limit: Self.longestToken)
        }
        if let value = payload.removeValue(forKey: LaunchKey.scene.rawValue) { try readScene(from: value) }
        reason = .url
        try checkDeliveries()
    }

    /// Only a delegate knows its scenes.
    private mutating func readScene(from value: Variant) throws(MethodError) {
        let key = LaunchKey.scene.rawValue
        scene = try value.string(key, limit: Self.longestScene)
        if scene.isEmpty { throw MethodError(.invalidArgs, "\(key) is empty") }
        needsDelegate = true
    }

    /// The entries for the application's launch options.
    var launchOptions: [(String, Variant)] {
        var options: [(String, Variant)] = [(LaunchKey.reason.rawValue, .string(reason.rawValue))]
        if !urls.isEmpty { options.append((LaunchKey.urls.rawValue, .strings(urls))) }
        if launchMode == .background {
            options.append((LaunchKey.launchMode.rawValue, .string(launchMode.rawValue)))
        }
        if !payload.isEmpty { options.append((LaunchKey.payload.rawValue, .dictionary(payload))) }
        if !scene.isEmpty { options.append((LaunchKey.scene.rawValue, .string(scene))) }
        if let source { options.append((SenderKey.application, .string(source.rawValue))) }
        if let scheduledLaunch { options.append((SenderKey.scheduledLaunch, .string(scheduledLaunch))) }
        return options
    }

    /// The additional items for its delegate: the URLs, and the activity, the message, the transfer or the scheduled launch
    /// that is the reason.
    /// The payload of an activity is its `type` (s) and `info` (a{sv}), that of a message its `name` (s) and
    /// `payload` (a{sv}), that of a transfer its `id` (s) and `result` (a{sv}).
    var deliveries: [Announcement] {
        var found: [Announcement] = []
        if !urls.isEmpty {
            found.append(.openURLs(urls, options: Variant.fields(of: signed(payload))))
        }
        if let scheduledLaunch { found.append(.scheduledLaunchDue(scheduledLaunch)) }
        guard let (key, content) = reason.delivery, case .string(let name)? = payload[key] else {
            return found
        }
        let fields = Variant.fields(of: payload.dictionary(content))
        switch reason {
        case .activity: found.append(.continueUserActivity(name, info: fields))
        case .transfer: found.append(.backgroundTransferFinished(name, result: fields))
        default:
            found.append(.messageReceived(from: source?.rawValue ?? "", name: name, payload: fields))
        }
        return found
    }

    /// The item for the delegate of a running application that is launched again with nothing to open.
    var reopening: Announcement { .reopen(options: Variant.fields(of: signed([:]))) }

    /// Adds the sender and the scene, which a payload never names itself, and the token, without which a Wayland
    /// compositor does not let the application raise a window of its own.
    private func signed(_ entries: [String: Variant]) -> [String: Variant] {
        var entries = entries
        entries[SenderKey.application] = source.map { .string($0.rawValue) }
        entries[LaunchKey.scene.rawValue] = scene.isEmpty ? nil : .string(scene)
        if !activationToken.isEmpty {
            entries[LaunchKey.activationToken.rawValue] = .string(activationToken)
        }
        return entries
    }

    /// The purpose that corresponds to launch options.
    init(_ launchOptions: [(String, Variant)]) {
        for (key, value) in launchOptions {
            switch (LaunchKey(rawValue: key), value) {
            case (.urls?, .strings(let urls)): self.urls = urls
            case (.payload?, .dictionary(let entries)): payload = entries
            case (.scene?, .string(let name)): scene = name
            case (.reason?, .string(let word)): reason = LaunchReason(rawValue: word) ?? .user
            case (nil, .string(let id)) where key == SenderKey.application: source = ApplicationID(id)
            case (nil, .string(let name)) where key == SenderKey.scheduledLaunch: scheduledLaunch = name
            default: break
            }
        }
    }

    /// A launch in the background, of nothing that a user asked for.
    init(for launch: ScheduledLaunch) {
        launchMode = .background
        reason = launch.trigger.kind.reason
        scheduledLaunch = launch.name
    }
}

extension LaunchReason {
    /// The keys of the payload that make an item for the delegate: those of its name (s) and its content (a{sv}).
    var delivery: (name: String, content: String)? {
        switch self {
        case .activity: ("type", "info")
        case .message: ("name", "payload")
        case .transfer: ("id", "result")
        case .user, .url, .restore, .time, .network, .power: nil
        }
    }
}

extension [String: Variant] {
    fileprivate func dictionary(_ key: String) -> [String: Variant] {
        if case .dictionary(let entries)? = self[key] { return entries }
        return [:]
    }
}

extension Variant {
    static func dictionary(of entries: [(key: String, value: Variant)]) -> Variant {
        .dictionary(Dictionary(entries, uniquingKeysWith: { first, _ in first }))
    }

    /// A dictionary as fields, which the life cycle stores without interpreting them.
    static func fields(of entries: [String: Variant]) -> [String] { Variant.dictionary(entries).texts ?? [] }

    /// The dictionary that `fields(of:)` was given.
    static func entries(inFields fields: [String]) -> [(String, Variant)] {
        var rest = fields[...]
        guard case .dictionary(let entries)? = Variant(texts: &rest) else { return [] }
        return entries.sorted { $0.key < $1.key }
    }

    /// URLs: each with a scheme (RFC 3986), without blanks and control characters.
    func urls(_ key: String) throws(MethodError) -> [String] {
        guard case .strings(let urls) = self else { throw wrongType(key, "as") }
        guard urls.count <= Self.mostURLs else {
            throw MethodError(.limitsExceeded, "\(key) has more than \(Self.mostURLs) entries")
        }
        for url in urls where !Self.isURL(url) {
            throw MethodError(
                .invalidArgs,
                "\(key): \"\(url.shortened)\" is not a URL: it needs a scheme, and %20 for a space")
        }
        return urls
    }

    private static let mostURLs = 1_024

    private static func isURL(_ text: String) -> Bool {
        let bytes = text.utf8
        guard let colon = bytes.firstIndex(of: UInt8(ascii: ":")), let first = bytes.first,
            isLetter(first), bytes.index(after: colon) != bytes.endIndex
        else { return false }
        return bytes[..<colon].allSatisfy {
            isLetter($0) || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0)
                || [UInt8(ascii: "+"), UInt8(ascii: "."), UInt8(ascii: "-")].contains($0)
        } && bytes[colon...].allSatisfy { $0 > 0x20 && $0 != 0x7f }
    }

    private static func isLetter(_ byte: UInt8) -> Bool {
        (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte | 0x20)
    }
}
