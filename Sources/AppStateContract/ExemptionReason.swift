/// Why a reporter says that a process must not be suspended by policy. Others may have reasons of their own.
public enum ExemptionReason: String, Sendable, CaseIterable {
    /// What its user has run before it is suspended has not succeeded (yet).
    case command
    /// It owns the clipboard: who pastes asks it.
    case clipboard
    /// Text in it was marked a short while ago (X11's primary selection): who pastes that asks it.
    case selection
    /// It owns a well-known name on the session bus: who calls it waits.
    case busName = "bus-name"
    /// It plays sound.
    case audio
    /// It keeps the session from going idle, to sleep or to its end, by a service of the session bus.
    case inhibitor

    /// Whether a reporter may give this word as a reason: `[a-z0-9-]{1,64}`.
    public static func isValid(_ word: String) -> Bool {
        (1...64).contains(word.utf8.count)
            && word.utf8.allSatisfy { byte in
                (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte)
                    || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) || byte == UInt8(ascii: "-")
            }
    }
}
