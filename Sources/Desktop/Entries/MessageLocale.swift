public import Linux

/// The language of the user's messages, as the Desktop Entry Specification matches it with localized keys.
public struct MessageLocale: Equatable, Sendable {
    /// What stands in the brackets of the keys that match, the best first: for `sr_YU@Latn`, that is `sr_YU@Latn`,
    /// `sr_YU`, `sr@Latn` and `sr`.
    let names: [String]

    /// - Parameter variable: returns the value of an environment variable; nil if it is not set or is empty.
    public init(_ variable: (String) -> String? = { Environment[$0] }) {
        let locale = variable("LC_ALL") ?? variable("LC_MESSAGES") ?? variable("LANG") ?? ""
        let parts = locale.split(separator: "@", maxSplits: 1, omittingEmptySubsequences: false)
        let place = (parts.first ?? "").prefix { $0 != "." }
        let language = place.prefix { $0 != "_" }
        let modifier = parts.count > 1 && !parts[1].isEmpty ? "@\(parts[1])" : nil
        var names: [String] = []
        for name in place == language ? [language] : [place, language] where !language.isEmpty {
            if let modifier { names.append("\(name)\(modifier)") }
            names.append(String(name))
        }
        self.names = names
    }
}
