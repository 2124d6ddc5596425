/// The names of background transfers, on the session bus: `org.appstate1.Transfers` and `org.appstate1.Transfer`.
public enum TransferNames {
    public static let service = "org.appstate1.Transfer"
    /// The object with the interface Transfers, and the parent of all transfers.
    public static let root = "/org/appstate1/Transfer"
    public static let manager = "org.appstate1.Transfers"
    public static let transfer = "org.appstate1.Transfer"

    public static func path(of number: UInt64) -> String { "\(root)/\(number)" }

    /// The number in a transfer's object path; nil for any other path.
    public static func number(inPath path: String) -> UInt64? {
        guard path.hasPrefix(root + "/"), let number = UInt64(path.dropFirst(root.utf8.count + 1)) else {
            return nil
        }
        return Self.path(of: number) == path ? number : nil
    }
}

/// The methods of `org.appstate1.Transfers`.
public enum TransfersMethod: String, MethodName {
    case begin = "Begin"

    public static var interface: String { TransferNames.manager }
}

/// The methods of `org.appstate1.Transfer`.
public enum TransferMethod: String, MethodName {
    case cancel = "Cancel"
    case retry = "Retry"

    public static var interface: String { TransferNames.transfer }
}

/// The properties of `org.appstate1.Transfer`.
public enum TransferProperty: String, Sendable, CaseIterable {
    case id = "ID"
    case application = "Application"
    case url = "URL"
    case target = "Target"
    case upload = "Upload"
    case state = "State"
    case waitsFor = "WaitsFor"
    case received = "Received"
    case total = "Total"
    case status = "Status"
    case error = "Error"
}

/// The keys of the options of `Begin`.
public enum TransferOption: String, Sendable, CaseIterable {
    case target, upload, headers, size, sha256, replace, discretionary, application
    case onlyUnmetered = "only-unmetered"
}

/// The values of `State`.
public enum TransferState: String, Sendable, CaseIterable {
    case waiting, running, finished, failed

    public var isEnd: Bool { self == .finished || self == .failed }
}

/// What a transfer waits for: the values of `WaitsFor`.
public enum TransferNeed: String, Sendable, CaseIterable {
    /// Its turn: enough others run.
    case turn
    /// The machine is offline.
    case network
    case unmetered
    /// It is discretionary, and the machine runs on battery.
    case mains
    /// It has been interrupted, and is tried again after a pause.
    case retry
}

/// The keys of the result that the application gets.
public enum TransferResult: String, Sendable, CaseIterable {
    case url, target, upload, state, received, status, error
}

/// The words that the error of a transfer begins with, before ": ".
public enum TransferError: String, Sendable, CaseIterable {
    /// Twelve attempts brought no byte.
    case network
    /// The server's certificate is not valid.
    case tls
    /// The server has refused; the sentence has the status of HTTP.
    case http
    /// The server asks for credentials.
    case credentials
    /// The bytes are not those of the expected hash.
    case hash
    /// There are fewer or more bytes than expected.
    case size
    case noSpace = "no-space"
    /// The file cannot be read or written.
    case file
    /// Something has the name of the target.
    case exists
}
