import SessionRules

/// The command line. Normal use needs no arguments.
enum Arguments: Equatable {
    case run(Options)
    case help
    case version
    case wrong(String)

    struct Options: Equatable {
        /// The logind session to report for. Nil: the daemon determines it.
        var session: String?
        /// Windows are not watched.
        var launchesOnly = false
        /// Each report is printed.
        var isVerbose = false
        var configuration = Configuration.Source.system
    }

    static let usage = """
        appstate-session [--session ID] [--config FILE] [--launch-only] [--verbose]

        Watches the windows of this session and reports them to appstated. Takes no
        arguments in normal use; it finds the desktop with SWAYSOCK, WAYLAND_DISPLAY
        and DISPLAY.

          --session ID   the logind session to report for, instead of the agent's own
          --config FILE  read this file alone, instead of /etc/appstated/session.conf
                         and $XDG_CONFIG_HOME/appstated/session.conf
          --launch-only  launch applications, but watch no windows: for a session
                         without a desktop, or with one that cannot be watched
          --verbose      print each report
          --version      print the version
          --help         print this

        On SIGHUP the configuration is read again.

        Ends when the display server ends. Exit status: 0 the display server has ended,
        or the agent was asked to end; 1 no display server answers, or there is no
        system bus; 2 wrong usage; 3 this kind of desktop cannot be watched.
        """

    static func reading(_ words: some Sequence<String>) -> Arguments {
        var options = Options()
        // `--option=value` is `--option value`.
        var rest = words.flatMap { word in
            word.hasPrefix("--")
                ? word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
                : [word]
        }[...]
        while let word = rest.popFirst() {
            switch word {
            case "--help", "-h": return .help
            case "--version": return .version
            case "--verbose", "-v": options.isVerbose = true
            case "--launch-only": options.launchesOnly = true
            case "--session":
                guard let session = rest.popFirst() else { return .wrong("--session needs an id") }
                options.session = session
            case "--config":
                guard let file = rest.popFirst() else { return .wrong("--config needs a file") }
                options.configuration = .file(file)
            default: return .wrong("there is no argument \"\(word)\"")
            }
        }
        return .run(options)
    }
}
