import AppStateContract

extension DesktopEntry {
    /// The command lines that start the application or have it open files and URLs. There are several if the program
    /// takes one file or URL at a time.
    ///
    /// If `Exec` has no field code for files, each file is passed at the end of a command line of its own, as GLib and
    /// KDE do.
    ///
    /// - Parameters:
    ///   - urls: URLs or absolute paths that the application is to open.
    ///   - programs: where to look for programs.
    ///   - terminal: the value of `$TERMINAL`, for an entry that needs a terminal.
    /// - Throws: a failure that says why the application cannot be started.
    public func invocations(
        opening urls: [String] = [], programs: ProgramPath = ProgramPath(), terminal: String? = nil
    ) throws(DesktopFailure) -> [Invocation] {
        try checkTryExec(programs)
        guard let exec else { throw .nothingToStart(id: id) }
        var line = try ExecLine(exec, of: id)
        if !urls.isEmpty, !line.takesFiles {
            if let url = urls.first(where: { FileURL.scheme(of: $0) != nil && FileURL.path(of: $0) == nil }) {
                throw .takesNoURL(id: id, exec: exec, url: url)
            }
            line.arguments.append([.code(UInt8(ascii: "f"))])
        }
        try checkDirectory()
        var invocations: [Invocation] = []
        for urls in line.takesOneFile && urls.count > 1 ? urls.map({ [$0] }) : [urls] {
            let arguments = try expand(line, urls)
            guard let first = arguments.first, !first.isEmpty else {
                throw .brokenExec(id: id, exec: exec, why: "it names no program")
            }
            guard let program = programs.find(first, from: workingDirectory) else {
                throw .programMissing(id: id, program: first)
            }
            let plain = Invocation(program: program, arguments: arguments, directory: workingDirectory)
            invocations.append(needsTerminal ? try inTerminal(plain, programs, terminal) : plain)
        }
        return invocations
    }

    /// Whether the program is installed and could be started, according to the entry. Menus and defaults leave out
    /// other entries.
    public func isInstalled(programs: ProgramPath = ProgramPath()) -> Bool {
        guard (try? checkTryExec(programs)) != nil else { return false }
        guard let exec else { return isDBusActivatable }
        guard let line = try? ExecLine(exec, of: id), case .text(let program)? = line.arguments.first?.first
        else { return false }
        return programs.find(program, from: workingDirectory) != nil
    }

    private func checkTryExec(_ programs: ProgramPath) throws(DesktopFailure) {
        guard let tryExec, programs.find(tryExec) == nil else { return }
        throw .tryExecMissing(id: id, program: tryExec)
    }

    private func checkDirectory() throws(DesktopFailure) {
        guard let workingDirectory, !EntryDirectories.isDirectory(workingDirectory) else { return }
        throw .directoryMissing(id: id, directory: workingDirectory)
    }

    private func inTerminal(
        _ plain: Invocation, _ programs: ProgramPath, _ terminal: String?
    ) throws(DesktopFailure) -> Invocation {
        guard let emulator = TerminalEmulator.find(programs, preferred: terminal) else {
            throw .noTerminal(id: id)
        }
        // The emulator needs the program's file, so `argv[0]` of the original command line is dropped.
        return Invocation(
            program: emulator.program,
            arguments: emulator.arguments + [plain.program] + plain.arguments.dropFirst(),
            directory: plain.directory)
    }

    private func expand(_ line: ExecLine, _ urls: [String]) throws(DesktopFailure) -> [String] {
        var arguments: [String] = []
        for pieces in line.arguments {
            // Each list holds the values that one field code expands to. The first value is appended to the text before
            // it; the others become separate arguments.
            var words: [String] = pieces.isEmpty ? [""] : []
            for piece in pieces {
                let values = try values(of: piece, urls)
                if let last = words.last, let first = values.first {
                    words.removeLast()
                    words += [last + first] + values.dropFirst()
                } else {
                    words += values
                }
            }
            arguments += words
        }
        return arguments
    }

    private func values(of piece: ExecLine.Piece, _ urls: [String]) throws(DesktopFailure) -> [String] {
        guard case .code(let code) = piece else {
            if case .text(let text) = piece { return [text] }
            return []
        }
        switch Unicode.Scalar(code) {
        case "f": return try urls.prefix(1).map(localPath)
        case "F": return try urls.map(localPath)
        case "u": return try urls.prefix(1).map(wholeURL)
        case "U": return try urls.map(wholeURL)
        case "i": return icon.map { ["--icon", $0] } ?? []
        case "c": return [name]
        case "k": return [path]
        default: return []
        }
    }

    private func localPath(_ url: String) throws(DesktopFailure) -> String {
        guard let path = FileURL.path(of: url) else {
            throw FileURL.scheme(of: url) == nil ? .notURL(url) : .remoteURL(id: id, url: url)
        }
        return path
    }

    private func wholeURL(_ url: String) throws(DesktopFailure) -> String {
        if url.utf8.first == UInt8(ascii: "/") { return FileURL.url(of: url) }
        guard FileURL.scheme(of: url) != nil else { throw .notURL(url) }
        return url
    }
}

extension ExecLine {
    /// Whether the line has a field code for files or URLs.
    var takesFiles: Bool { has("fFuU") }

    /// Whether the line takes one file or URL at a time.
    var takesOneFile: Bool { has("fu") }

    private func has(_ codes: String) -> Bool {
        arguments.contains { pieces in codes.utf8.contains { pieces.contains(.code($0)) } }
    }
}
