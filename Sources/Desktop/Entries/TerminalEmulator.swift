import Glibc
import Linux

/// A program that runs another program in a terminal.
struct TerminalEmulator: Equatable {
    /// The path of the emulator.
    let program: String
    /// The words before the program to run, beginning with the emulator's own name.
    let arguments: [String]

    /// Emulators in the order in which they are looked for, each with the options that it needs before the command.
    /// Emulators that open their windows in a server process get an option to wait or to use no server. Otherwise the
    /// program would not be part of what was started here.
    private static let known: [(name: String, options: [String])] = [
        ("xdg-terminal-exec", []), ("x-terminal-emulator", ["-e"]), ("gnome-terminal", ["--wait", "--"]),
        ("konsole", ["-e"]), ("xfce4-terminal", ["--disable-server", "-x"]), ("foot", []), ("kitty", []),
        ("alacritty", ["-e"]), ("xterm", ["-e"]), ("ptyxis", ["--standalone", "--"]), ("kgx", ["--"]),
        ("mate-terminal", ["--disable-factory", "-x"]), ("ghostty", ["-e"]),
        ("wezterm", ["start", "--always-new-process", "--"]), ("terminator", ["--no-dbus", "-x"]),
        ("tilix", ["--new-process", "-e"]), ("qterminal", ["-e"]), ("lxterminal", ["--no-remote", "-e"]),
    ]

    /// The first emulator that is installed. Nil: none is installed.
    ///
    /// - Parameter preferred: the value of `$TERMINAL`: a program, perhaps with options. It is looked for after
    ///   xdg-terminal-exec, which has its own user configuration.
    static func find(_ programs: ProgramPath, preferred: String?) -> TerminalEmulator? {
        var candidates = known.map { ([$0.name], $0.options) }
        let words = (preferred ?? "").split(separator: " ").map(String.init)
        if let name = words.first?.split(separator: "/").last.map(String.init) {
            candidates.insert((words, options(of: name)), at: 1)
        }
        for (words, options) in candidates {
            guard let name = words.first, let program = programs.find(name) else { continue }
            if name == alternative, let known = linked(from: program, programs) { return known }
            return TerminalEmulator(program: program, arguments: words + options)
        }
        return nil
    }

    /// The link by which Debian's administrator chooses an emulator (update-alternatives(1)). Some emulators are linked
    /// through a wrapper, such as `xfce4-terminal.wrapper`, which takes `-e` but does not pass on the option that is
    /// needed here.
    private static let alternative = "x-terminal-emulator"

    /// The known emulator behind that link. Nil: it is unknown.
    private static func linked(from program: String, _ programs: ProgramPath) -> TerminalEmulator? {
        guard let pointer = realpath(program, nil) else { return nil }
        defer { free(pointer) }
        let file = String(cString: pointer).split(separator: "/").last ?? ""
        let name = file.hasSuffix(".wrapper") ? file.dropLast(".wrapper".count) : file
        guard name != alternative, let known = known.first(where: { $0.name == name }),
            let program = programs.find(known.name)
        else { return nil }
        return TerminalEmulator(program: program, arguments: [known.name] + known.options)
    }

    private static func options(of name: String) -> [String] {
        // footclient needs a server that runs, so it is used only if the user prefers it.
        name == "footclient" ? [] : known.first { $0.name == name }?.options ?? ["-e"]
    }
}
