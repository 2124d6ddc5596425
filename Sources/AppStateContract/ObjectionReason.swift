/// Why policy must not suspend an application: `KeepWhile=`, `keep-while`. A reporter says so
/// (`Reporter.ReplaceObjections`), or the daemon finds work in progress. Reporters may have other reasons of their own.
public enum ObjectionReason: String, Sendable, CaseIterable {
    /// The command that the user has configured to run before its suspension has not succeeded (yet).
    case command
    /// It owns the clipboard: an application that pastes requests the data from it. Or it manages the clipboard: an
    /// application that exits hands the data over to it.
    case clipboard
    /// Text in it was selected a short while ago (X11's primary selection): an application that pastes
    /// requests the data from it.
    case selection
    /// It plays or records sound.
    case audio
    /// It prevents the session from becoming idle, sleeping or ending, through a service of the session bus; or it holds
    /// an inhibitor of systemd-logind.
    case inhibitor
    /// It has windows, and does not let the session agent inspect it: most of what may need it would not be noticed.
    case unwatched
    /// It is a Flatpak that its user allows to run in the background.
    case background
    /// It transfers more than `NetworkRate=` over TCP.
    case network
    /// It writes more than `DiskRate=` to files.
    case disk
    /// It uses a tenth of a processor. A game does so as well, so this counts only if the user's rule names it.
    case cpu
    /// It has a device open that speaks for itself: a serial line, a camera, an input device.
    case device
    /// Its service manager would end it, because it would no longer say that it is alive.
    case watchdog
    /// A command runs in its terminal, in the foreground or in the background.
    case terminalJob = "terminal-job"

    /// Work in progress, which the daemon itself looks for before it suspends an application.
    public var isWork: Bool {
        switch self {
        case .network, .disk, .cpu, .device, .watchdog, .terminalJob, .inhibitor: true
        case .command, .clipboard, .selection, .audio, .unwatched, .background: false
        }
    }

    /// Whether it counts without a rule.
    public var isDefault: Bool { self != .cpu }

    /// Whether a reporter may use this word as a reason: `[a-z0-9-]{1,64}`.
    public static func isValid(_ word: String) -> Bool {
        (1...64).contains(word.utf8.count)
            && word.utf8.allSatisfy { byte in
                (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte)
                    || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) || byte == UInt8(ascii: "-")
            }
    }
}
