/// Whether and how a process was stopped when it was checked: the kernel's report, without an interpretation.
public struct StopReading: Hashable, Sendable {
    /// A stop by signal.
    public enum Signal: Hashable, Sendable {
        case none
        /// SIGSTOP stays pending until the process runs.
        case pending
        case stopped
    }

    /// The freeze of its cgroup.
    public struct Freeze: Hashable, Sendable {
        /// The name of the cgroup that was ordered to freeze.
        public let cgroup: String
        /// Whether we ordered it.
        public let isOurs: Bool
        /// Whether all processes in it are frozen. While a process exits or enters, this is briefly false.
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
    public func isStopped(before: Bool) -> Bool {
        signal == .stopped || freeze.map { before || $0.isComplete } ?? false
    }

    /// The outcome is not known yet, because a stop is pending until it runs.
    func isUndecided(before: Bool) -> Bool { signal == .pending && !isStopped(before: before) }

    /// The others that want a stopped process stopped: those that wanted it `before`, and `sender`, which was
    /// seen to stop it.
    func foreignStop(_ before: ForeignStop, _ sender: String?) -> ForeignStop {
        var foreign = before
        foreign.cgroup = freeze.flatMap { $0.isOurs ? nil : $0.cgroup }
        if signal == .none {
            foreign.sender = nil
        } else if let sender, !sender.isEmpty || foreign.sender == nil {
            foreign.sender = sender
        } else if freeze?.isOurs == true, foreign.sender == nil {
            // Under our own freeze, every stop is another's.
            foreign.sender = ""
        }
        return foreign
    }
}

/// The other programs that want a process stopped, as far as is known.
struct ForeignStop: Hashable, Sendable {
    /// The process that was seen to stop it by signal; empty: the process is not known.
    var sender: String?
    /// The name of the cgroup that another process ordered to freeze.
    var cgroup: String?

    static let absent = ForeignStop()
    /// It is stopped, and not by us.
    static let unknown = ForeignStop(sender: "")

    /// The signal's sender, if that is known, else the cgroup; nil: no other process wants it stopped.
    var holder: String? {
        if let sender, !sender.isEmpty { return sender }
        return cgroup.map { "cgroup \($0)" } ?? sender
    }
}
