/// How a process was found when it was looked at: what the kernel reports, not yet what that means.
public struct Standing: Hashable, Sendable {
    /// A stop by signal.
    public enum Signal: Hashable, Sendable {
        case none
        /// SIGSTOP is pending until it runs.
        case pending
        case stopped
    }

    /// The freeze of its cgroup.
    public struct Freeze: Hashable, Sendable {
        /// The name of the cgroup that was ordered to freeze.
        public let cgroup: String
        /// We ordered it.
        public let isOurs: Bool
        /// All processes in it are frozen. While one of them exits, or another enters, that is not so for a moment.
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

    /// It executes nothing. For a process that was stopped `before`, the order to freeze counts, complete or not.
    public func isStanding(before: Bool) -> Bool {
        signal == .stopped || freeze.map { before || $0.isComplete } ?? false
    }

    /// It is not known yet what will become of it: a stop is pending until it runs.
    func isOpen(of before: Bool) -> Bool { signal == .pending && !isStanding(before: before) }

    /// Who else wants a stopped process stopped: whoever wanted it `before`, and `sender`, which was seen to stop it.
    func others(_ before: Others, _ sender: String?) -> Others {
        var others = before
        others.cgroup = freeze.flatMap { $0.isOurs ? nil : $0.cgroup }
        if signal == .none {
            others.sender = nil
        } else if let sender, !sender.isEmpty || others.sender == nil {
            others.sender = sender
        } else if freeze?.isOurs == true, others.sender == nil {
            // Under our own freeze, every stop is another's.
            others.sender = ""
        }
        return others
    }
}

/// Who other than us wants a process stopped, as far as is known.
struct Others: Hashable, Sendable {
    /// Who was seen to stop it by signal; empty: it is not known who.
    var sender: String?
    /// The name of the cgroup that another process ordered to freeze.
    var cgroup: String?

    static let nobody = Others()
    /// It is stopped, and not by us.
    static let somebody = Others(sender: "")

    /// The signal's sender, if that is known, else the cgroup; nil: no other process wants it stopped.
    var holder: String? {
        if let sender, !sender.isEmpty { return sender }
        return cgroup.map { "cgroup \($0)" } ?? sender
    }
}
