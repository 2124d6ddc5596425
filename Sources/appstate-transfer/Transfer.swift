import AppStateContract

/// A transfer, and what the program is doing about it.
final class Transfer {
    var record: Record
    var activity = Activity.none
    /// The attempts since the last that brought new bytes.
    var failures = 0
    /// The most bytes that it has ever had.
    var best: UInt64 = 0
    /// The last interruption, in a sentence.
    var interruption = ""
    /// CLOCK_MONOTONIC of the last announcement of its progress.
    var announced: UInt64 = 0
    /// CLOCK_MONOTONIC from which on what was received is put on the disk.
    var nextSync: UInt64 = 0
    /// Nobody has cancelled it.
    var isKept = true
    /// Whether its last attempt has continued an earlier one.
    var isContinued = false

    enum Activity {
        /// Its end, or its first record, is not on the disk yet.
        case recording
        case none
        case waiting(TransferNeed)
        /// CLOCK_MONOTONIC of the next attempt.
        case pausing(until: UInt64)
        case running(Attempt)
        /// The worker gives the file its name.
        case landing
    }

    init(_ record: Record) {
        self.record = record
    }

    var path: String { TransferNames.path(of: record.number) }

    var state: TransferState {
        switch (record.stage, activity) {
        // An end counts once it is on the disk.
        case (.finished, .recording), (.failed, .recording): .running
        case (.finished, _): .finished
        case (.failed, _): .failed
        case (_, .running), (_, .landing), (.landing, _): .running
        default: .waiting
        }
    }

    var need: TransferNeed? {
        switch activity {
        case .waiting(let need): need
        case .pausing: .retry
        case .recording, .none, .running, .landing: nil
        }
    }

    var attempt: Attempt? {
        if case .running(let attempt) = activity { attempt } else { nil }
    }

    var received: UInt64 { attempt?.received ?? record.received }
    var total: UInt64 { attempt?.total ?? record.total }
}
