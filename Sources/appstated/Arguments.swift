import Daemon

/// The command line. Normal use needs no arguments.
enum Arguments: Equatable {
    case run(Configuration.Source)
    case handOver
    case release
    case help
    case version
    case wrong(String)

    static let usage = """
        appstated [--config FILE]

        The application life cycle as a D-Bus system service, org.appstate1. Takes no
        arguments in normal use; the configuration is /etc/appstated/appstated.conf and
        /etc/appstated/appstated.conf.d/*.conf.

          --config FILE  read only this file
          --hand-over    open what only root may open, store it in the service
                         manager and exit: for the unit's ExecStartPre=+
          --release      resume everything that a daemon has left suspended when it
                         exited, and exit: for appstated-release.service
          --version      print the version
          --help         print this

        Environment: DBUS_SYSTEM_BUS_ADDRESS, NOTIFY_SOCKET, RUNTIME_DIRECTORY,
        STATE_DIRECTORY; SYSTEMD_LOG_LEVEL=debug shows every edge in the journal.
        """

    init(_ words: some Sequence<String>) {
        var source = Configuration.Source.system
        let words = Array(words)
        // A user who asks for help wants nothing else done.
        if words.contains(where: ["--help", "-h"].contains) {
            self = .help
            return
        }
        let alone: [String: Self] = ["--version": .version, "--hand-over": .handOver, "--release": .release]
        var rest = words[...]
        while let word = rest.popFirst() {
            if let mode = alone[word] {
                self = words.count == 1 ? mode : .wrong("\(word) takes no other argument")
                return
            }
            switch word {
            case "--config":
                guard let file = rest.popFirst() else {
                    self = .wrong("--config needs a file")
                    return
                }
                source = .file(file)
            case let word where word.hasPrefix("--config="):
                source = .file(String(word.dropFirst("--config=".count)))
            default:
                self = .wrong("there is no argument \"\(word)\"")
                return
            }
        }
        self = .run(source)
    }
}
