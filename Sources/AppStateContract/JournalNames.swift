/// The kinds of lines that the daemon writes to the journal about applications, by their MESSAGE_ID
/// (systemd.journal-fields(7)). Programs search for these, and systemd/appstated.catalog explains them.
public enum JournalMessage: String, Sendable, CaseIterable {
    /// A process was registered.
    case applicationAdded = "2e67953a568e44558c0ea2c1950f37f4"
    /// An application ended, or was unregistered.
    case applicationRemoved = "05ba81b3c9494fd2ab7691f34b014142"
    /// The state changed along one edge.
    case stateChanged = "6ecbee2ded9142fdadeeea7665d96d67"
    /// Policy wanted to suspend it, and something prevented that.
    case notSuspended = "8287c0a5c97340a0a31e14c77f6b6ba9"
    /// `Mode=observe`: it would have been suspended.
    case wouldSuspend = "e0fb313f4fd5400eabb3a7b8016a9b47"
    /// Another process continued it again and again, so the holds were given up.
    case holdsGivenUp = "dd4f9e789cd6420b8a61089bb7f22cdf"
    /// It was frozen, or about to be, and runs again because its cgroup could not be used.
    case thawed = "d1060b34a24641beabe557bafac40aef"
    /// An application that policy had suspended was needed.
    case needed = "3b0c27a5d3f84c1d9f0e7c4a1f6d25e8"
    /// It did not respond in time to an event that requires a response.
    case unresponsive = "b5a1f18317af45649cc9e8a78ec5e767"
    /// Ended because memory was short.
    case reclaimed = "88d726a6ecfd4a369c2d870e013d1309"
    /// `Mode=observe`: it would have been ended because memory was short.
    case wouldReclaim = "955a1ac2ffbe47c0b2159d7b12231f78"
    /// It is ended because memory is short, although its end loses unsaved changes.
    case losesUnsaved = "972ed3d13dd541179a8e78f6154f064e"
    /// It should have been ended because memory was short, but was not, or not yet.
    case notReclaimed = "5ed61fa5213c432084c9f1c2c6960cbd"
    /// It was ended because memory was short, and is not started again.
    case notRelaunched = "4f1d8a0c7be94d6e8d0a53c6b7e2f914"
    /// Its memory was paged out, or could not be.
    case pushedOut = "c27686cf5f5249f8837ad054f08edfd3"
    /// An operation of the daemon failed.
    case stepFailed = "47dbbcd6204140f4b16a6bf7c1e43dce"
    /// `Mode=observe`: the resources that it would have been given in its state.
    case resources = "90c4d2f869e1484893a368f2ae14b90c"
    /// A resource setting of its processes belongs to another program.
    case leftAlone = "b0df04c258a0468286b64b14af260142"
    /// The level of memory pressure changed.
    case memoryPressure = "9c2ae69e6bea42eb941a43eca07488b0"
}

/// Our own journal fields. All but `level` are about one application.
public enum JournalField: String, Sendable, CaseIterable {
    /// The N of its object path.
    case application = "APPSTATE_APP"
    /// The id that it was registered with.
    case applicationID = "APPSTATE_APP_ID"
    /// Its main process, and its user.
    case pid = "APPSTATE_PID"
    case user = "APPSTATE_UID"
    /// The logind session and the systemd unit of the process at registration, if it has them.
    case session = "APPSTATE_SESSION"
    case unit = "APPSTATE_UNIT"
    /// An edge: its start and its end.
    case from = "APPSTATE_FROM"
    case to = "APPSTATE_TO"
    /// The reason: an edge's reason, an exit reason, or what prevented a suspension or an end.
    case reason = "APPSTATE_REASON"
    /// How much memory was involved, and how long it took.
    case bytes = "APPSTATE_BYTES"
    case microseconds = "APPSTATE_USEC"
    /// The level of memory pressure.
    case level = "APPSTATE_LEVEL"
}
