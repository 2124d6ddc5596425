import Linux

/// The names by which a process may be recognized as an application.
struct ProgramName {
    /// How well an application's id matches a process.
    enum Match: Int, Comparable {
        case none
        /// It is in the application's unit, like every process that was started from there.
        case unit
        case program

        static func < (left: Match, right: Match) -> Bool { left.rawValue < right.rawValue }
    }

    /// The name of the program's file, and the name that the process gives itself; in lower case.
    let names: Set<String>
    /// The application of its unit, in lower case; empty if it is in none.
    let unit: String

    /// The kernel keeps no more bytes of a process's own name: TASK_COMM_LEN, without its NUL.
    private static let longestComm = 15

    init(of pid: Int32, proc: Proc) {
        names = Set(
            [try? proc.program(of: pid), (try? proc.stat(pid))?.comm].compactMap { $0?.lowercased() }
                .filter { !$0.isEmpty })
        unit =
            (try? proc.unifiedCgroup(of: pid)).flatMap { ApplicationUnit(inPath: $0) }?.application?
            .lowercased()
            ?? ""
    }

    init(names: Set<String>, unit: String = "") {
        self.names = names
        self.unit = unit
    }

    /// - Parameters:
    ///   - appID: the id that the window gives. The last component of a reversed domain name counts, too.
    ///   - command: the program that the desktop entry of that id starts, if there is one.
    func match(_ appID: String, command: String? = nil) -> Match {
        let appID = appID.lowercased()
        guard !appID.isEmpty else { return .none }
        let forms = [appID, appID.split(separator: ".").last.map(String.init), command?.lowercased()]
        for form in forms.compactMap(\.self) where !form.isEmpty {
            if names.contains(form) { return .program }
            // The name of a script is truncated.
            if form.utf8.count > Self.longestComm,
                names.contains(String(decoding: form.utf8.prefix(15), as: UTF8.self))
            {
                return .program
            }
        }
        return unit == appID ? .unit : .none
    }
}
