/// Why a reporter says that policy must not suspend a process. Other reporters may have reasons of their own.
public enum ExemptionReason: String, Sendable, CaseIterable {
    /// The command that the user has configured to run before its suspension has not succeeded (yet).
    case command
    /// It owns the clipboard: an application that pastes requests the data from it. Or it manages the clipboard: an
    /// application that exits hands the data over to it.
    case clipboard
    /// Text in it was selected a short while ago (X11's primary selection): an application that pastes
    /// requests the data from it.
    case selection
    /// It owns a well-known name on the session bus, and its callers would wait.
    case busName = "bus-name"
    /// It plays or records sound.
    case audio
    /// It prevents the session from becoming idle, sleeping or ending, through a service of the session bus.
    case inhibitor
    /// It has windows, and does not let the session agent inspect it: most of what may need it would not be noticed.
    case unwatched

    /// Whether a reporter may use this word as a reason: `[a-z0-9-]{1,64}`.
    public static func isValid(_ word: String) -> Bool {
        (1...64).contains(word.utf8.count)
            && word.utf8.allSatisfy { byte in
                (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte)
                    || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) || byte == UInt8(ascii: "-")
            }
    }
}
