import Linux

/// A program that shows another in a terminal.
struct TerminalEmulator: Equatable {
    /// Its file.
    let program: String
    /// What stands before the program that it is to run, the emulator's own name first.
    let arguments: [String]

    /// Emulators in the order in which they are looked for, and what each wants before the command. Those that hand their
    /// windows to a server are told to wait, or to have none: the program would be nobody's.
    private static let known: [(name: String, options: [String])] = [
        ("xdg-terminal-exec", []), ("x-terminal-emulator", ["-e"]), ("gnome-terminal", ["--wait", "--"]),
        ("konsole", ["-e"]), ("xfce4-terminal", ["--disable-server", "-x"]), ("foot", []), ("kitty", []),
        ("alacritty", ["-e"]), ("xterm", ["-e"]),
    ]
    /// Others that a person may prefer, and that want something else than `-e`.
    private static let others: [String: [String]] = [
        "footclient": [], "wezterm": ["start", "--always-new-process", "--"], "ptyxis": ["--"],
        "kgx": ["--"], "mate-terminal": ["--disable-factory", "-x"], "terminator": ["-x"], "ghostty": ["-e"],
    ]

    /// The first that is installed; nil: none is.
    ///
    /// - Parameter preferred: what `$TERMINAL` says: a program, perhaps with options. It is looked for after
    ///   xdg-terminal-exec, which a person configures.
    static func find(_ programs: ProgramPath, preferred: String?) -> TerminalEmulator? {
        var candidates = known.map { ([$0.name], $0.options) }
        let words = (preferred ?? "").split(separator: " ").map(String.init)
        if let name = words.first?.split(separator: "/").last.map(String.init) {
            candidates.insert((words, options(of: name)), at: 1)
        }
        for (words, options) in candidates {
            guard let name = words.first, let program = programs.find(name) else { continue }
            return TerminalEmulator(program: program, arguments: words + options)
        }
        return nil
    }

    private static func options(of name: String) -> [String] {
        known.first { $0.name == name }?.options ?? others[name] ?? ["-e"]
    }
}
