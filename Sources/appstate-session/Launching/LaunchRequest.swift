import AppStateBus

/// The daemon's request for a launch: the options of `Start`, `Open` and `Present`.
struct LaunchRequest: Equatable {
    var urls: [String] = []
    /// The application must not show a window.
    var isBackground = false
    /// The activation token of the user's action.
    var token: String?

    /// The maximum number of URLs.
    private static let mostURLs = 1_024
    /// The maximum length of a URL, in bytes. It equals the limit for all arguments of a call to the daemon.
    private static let longestURL = 65_536
    /// The maximum length of a token, in bytes.
    private static let longestToken = 4_096

    init() {}

    /// Reads `a{sv}`. Unknown options are ignored.
    ///
    /// - Throws: `InvalidArgs`, which names the wrong option.
    init(reading options: [(key: String, value: Variant)]) throws(MethodError) {
        for (key, value) in options {
            switch (key, value) {
            case ("urls", .strings(let urls)):
                guard urls.count <= Self.mostURLs else {
                    throw .invalidArgs("urls: \(urls.count) are too many; \(Self.mostURLs) at most")
                }
                for url in urls { try Self.check(url, of: key, atMost: Self.longestURL) }
                self.urls = urls
            case ("launch-mode", .string("foreground")): isBackground = false
            case ("launch-mode", .string("background")): isBackground = true
            case ("activation-token", .string(let text)):
                try Self.check(text, of: key, atMost: Self.longestToken)
                token = text.isEmpty ? nil : text
            case ("urls", _), ("launch-mode", _), ("activation-token", _):
                throw .invalidArgs("\(key): \(value) is not a valid value")
            default: break
            }
        }
    }

    private static func check(
        _ text: String, of key: String, atMost limit: Int
    ) throws(MethodError) {
        guard text.utf8.count <= limit else {
            throw .invalidArgs("\(key): \(text.utf8.count) bytes are too many; \(limit) at most")
        }
        guard text.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F }) else {
            throw .invalidArgs("\(key): it contains a control character")
        }
    }
}
