import CGIO
import Glibc

/// A terminal emulator that runs a program as its argument.
enum Terminal {
    /// Emulators in the order in which they are looked for, each with the options that it needs before the command.
    /// Those that open their windows in a server process get an option to wait or to use no server. Otherwise the
    /// program would not be part of what was started here.
    private static let known: [(name: String, options: [String])] = [
        ("xdg-terminal-exec", []), ("x-terminal-emulator", ["-e"]), ("gnome-terminal", ["--wait", "--"]),
        ("konsole", ["-e"]), ("xfce4-terminal", ["--disable-server", "-x"]), ("foot", []), ("kitty", []),
        ("alacritty", ["-e"]), ("xterm", ["-e"]), ("ptyxis", ["--standalone", "--"]), ("kgx", ["--"]),
        ("mate-terminal", ["--disable-factory", "-x"]), ("ghostty", ["-e"]),
        ("wezterm", ["start", "--always-new-process", "--"]), ("terminator", ["--no-dbus", "-x"]),
        ("tilix", ["--new-process", "-e"]), ("qterminal", ["-e"]), ("lxterminal", ["--no-remote", "-e"]),
    ]

    /// The file of the first one that is installed, and the words before the program to run. `$TERMINAL` is tried
    /// after xdg-terminal-exec, which has its own user configuration.
    static func find() -> [String]? {
        var candidates = known.map { [$0.name] + $0.options }
        let words =
            getenv("TERMINAL").map { String(cString: $0).split(separator: " ").map(String.init) } ?? []
        if let name = words.first?.split(separator: "/").last {
            // footclient needs a server that runs, so it is used only if the user prefers it.
            let options = name == "footclient" ? [] : known.first { $0.name == name }?.options ?? ["-e"]
            candidates.insert(words + options, at: 1)
        }
        for words in candidates {
            guard let name = words.first, let file = found(name) else { continue }
            if name == alternative, let known = linked(from: file), let file = found(known.name) {
                return [file, known.name] + known.options
            }
            return [file] + words
        }
        return nil
    }

    /// The link by which Debian's administrator chooses an emulator (update-alternatives(1)). Some are linked through
    /// a wrapper, such as `xfce4-terminal.wrapper`, which does not pass on the option that is needed here.
    private static let alternative = "x-terminal-emulator"

    private static func linked(from file: String) -> (name: String, options: [String])? {
        guard let pointer = realpath(file, nil) else { return nil }
        defer { free(pointer) }
        let target = String(cString: pointer).split(separator: "/").last ?? ""
        let name = target.hasSuffix(".wrapper") ? target.dropLast(".wrapper".count) : target
        return name == alternative ? nil : known.first { $0.name == name }
    }
}
