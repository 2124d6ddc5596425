/// How a process was found when it was looked at: what the kernel says, and not yet what it means.
public struct Standing: Hashable, Sendable {
    /// A stop by signal.
    public enum Signal: Hashable, Sendable {
        case none
        /// SIGSTOP waits for it to run.
        case pending
        case stopped
    }

    /// The freeze of its cgroup.
    public struct Freeze: Hashable, Sendable {
        /// The name of the cgroup that was told to freeze.
        public let cgroup: String
        /// We told it.
        public let isOurs: Bool
        /// All in it stand. While one in it dies, or comes in, they do not, for a moment.
        public let isComplete: Bool

        public init(cgroup: String, isOurs: Bool, isComplete: Bool) {
            self.cgroup = cgroup
            self.isOurs = isOurs
            self.isComplete = isComplete
        }
    }

    public let signal: Signal
    public let freeze: Freeze?

    public init(signal: Signal, freeze: Freeze? = nil) {
        self.signal = signal
        self.freeze = freeze
    }

    /// It executes nothing. Of one that stood `before` the order to freeze counts, complete or not.
    public func isStanding(before: Bool) -> Bool {
        signal == .stopped || freeze.map { before || $0.isComplete } ?? false
    }

    /// What becomes of it is not known yet: once it runs, a stop is waiting for it.
    func isOpen(of before: Bool) -> Bool { signal == .pending && !isStanding(before: before) }

    /// Who else wants a standing process stopped: who wanted it `before`, and `sender`, who was seen to stop it.
    func others(_ before: Others, _ sender: String?) -> Others {
        var others = before
        others.cgroup = freeze.flatMap { $0.isOurs ? nil : $0.cgroup }
        if signal == .none {
            others.sender = nil
        } else if let sender, !sender.isEmpty || others.sender == nil {
            others.sender = sender
        } else if freeze?.isOurs == true, others.sender == nil {
            // Beneath our freeze every stop is another's.
            others.sender = ""
        }
        return others
    }
}

/// Who but us wants a process stopped, as far as it is known.
struct Others: Hashable, Sendable {
    /// Who was seen to stop it by signal; empty: it is not known who.
    var sender: String?
    /// The name of the cgroup that somebody told to freeze.
    var cgroup: String?

    static let nobody = Others()
    /// It stands, and not by us.
    static let somebody = Others(sender: "")

    /// The signal's sender, if that is known, else the cgroup; nil for nobody.
    var holder: String? {
        if let sender, !sender.isEmpty { return sender }
        return cgroup.map { "cgroup \($0)" } ?? sender
    }
}
