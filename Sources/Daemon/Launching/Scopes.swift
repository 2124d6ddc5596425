import AppStateContract
import Linux

/// Asks session agents for scopes.
final class Scopes {
    /// Asks the agent of the application's session to move processes into a scope of their own.
    ///
    /// - Returns: false if there is no agent to ask; otherwise `completion` is called once, with nil or the reason of the
    ///   failure.
    func make(
        _ id: ApplicationID, user: UInt32, session: String, main: ProcessIdentity, others: [Int32],
        completion: @escaping (String?) -> Void
    ) -> Bool {
        false
    }
}
