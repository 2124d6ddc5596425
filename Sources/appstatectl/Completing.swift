import AppStateContract
import ArgumentParser
import Desktop
import Glibc

/// Prints the words that a shell can complete an argument with. Only the completion scripts call it.
struct Complete: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Print the words that a shell can complete an argument with.", shouldDisplay: false)

    /// What an argument may be.
    enum Words: String, ExpressibleByArgument, CaseIterable {
        /// The numbers and the ids of the applications that are registered now.
        case applications
        /// Their ids alone.
        case ids
        /// The ids of those that belong to the user.
        case own
        /// The ids of desktop entries.
        case entries
    }

    @OptionGroup var bus: BusOptions
    @Argument var words: Words

    func run() throws {
        // bash expands the words that it is offered, so that one with `$(…)` would run a command. Numbers and ids hold
        // nothing that it expands; the name of a desktop entry's file may be anything, but is then no id.
        for word in try found() where ApplicationID(word) != nil { Terminal.emit(Line(word)) }
    }

    private func found() throws -> [String] {
        switch words {
        case .entries: return DesktopEntries(complain: { Terminal.warn("appstatectl: \($0)") }).all.map(\.id)
        case .applications: return try rows().flatMap { [String($0.number), $0.id] }
        case .ids: return Self.distinct(try rows().map(\.id))
        case .own: return Self.distinct(try rows().filter { $0.uid == getuid() }.map(\.id))
        }
    }

    private func rows() throws -> [Client.Row] { try bus.connect().applications() }

    private static func distinct(_ words: [String]) -> [String] { Set(words).sorted() }
}

extension CompletionKind {
    /// Completes with the numbers and ids of the applications that are registered now.
    static var applications: CompletionKind { words(.applications) }
    /// Completes with their ids, where digits are not the number of an application.
    static var applicationIDs: CompletionKind { words(.ids) }
    /// Completes with the ids of the user's own applications.
    static var ownApplicationIDs: CompletionKind { words(.own) }
    /// Completes with the ids of desktop entries.
    static var desktopEntries: CompletionKind { words(.entries) }

    private static func words(_ words: Complete.Words) -> CompletionKind {
        .shellCommand("appstatectl complete \(words.rawValue) 2>/dev/null")
    }
}
