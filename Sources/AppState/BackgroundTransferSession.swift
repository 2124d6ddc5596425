internal import AppStateBus
internal import AppStateContract
internal import Glibc

/// Downloads and uploads that go on while the application is suspended or does not run, like those of a `URLSession`
/// with a background configuration.
///
///     let session = BackgroundTransferSession.shared
///     try await session.download(from: "https://example.org/map.bin", to: "/home/me/Maps/map.bin")
///
/// At the end the delegate is called (``ApplicationDelegate/application(_:didFinish:)``). An application that does not
/// run is launched for this in the background, with reason ``LaunchOptions/Reason/transfer``. After a crash it may not
/// be known whether it was told: an application reads ``transfers()`` when it is launched.
@MainActor
public final class BackgroundTransferSession {
    /// The only instance.
    public static let shared = BackgroundTransferSession()

    private var bus: Bus?
    private var slots: [UInt64: Slot] = [:]
    private var lastSlot: UInt64 = 0

    private init() {}

    /// How a transfer is done.
    public struct Options: Sendable {
        /// Additional lines of the request, `Name: value`.
        public var headers: [String] = []
        /// The expected number of bytes of a download; nil: any.
        public var expectedSize: UInt64?
        /// The expected hash of a download, in hexadecimal digits; nil: any.
        public var expectedSHA256: String?
        /// Whether the target may exist, and is replaced by the whole new file.
        public var replacesTarget = false
        /// Whether it may wait for mains power and a connection that is not metered.
        public var isDiscretionary = false
        /// Whether it may use a metered connection.
        public var allowsExpensiveNetworkAccess = true

        public init() {}
    }

    /// Begins to download a file. When this returns, the transfer survives the application and a reboot.
    ///
    /// - Parameters:
    ///   - url: what to download, by http or https.
    ///   - target: the absolute path of the file. It appears when it is complete.
    ///   - options: how this is done.
    @discardableResult
    public func download(
        from url: String, to target: String, options: Options = Options()
    ) async throws(ApplicationError) -> BackgroundTransfer {
        try await begin(url, [(.target, .string(target))], options)
    }

    /// Begins to upload a file (PUT). It must not change until the end.
    ///
    /// - Parameters:
    ///   - file: the absolute path of the file.
    ///   - url: where it goes, by http or https.
    ///   - options: how this is done.
    @discardableResult
    public func upload(
        _ file: String, to url: String, options: Options = Options()
    ) async throws(ApplicationError) -> BackgroundTransfer {
        try await begin(url, [(.upload, .string(file))], options)
    }

    /// The transfers of this application that have not been forgotten, those that have failed included.
    public func transfers() async throws(ApplicationError) -> [BackgroundTransfer] {
        let id = Application.shared.id
        return try await ask(TransferNames.root, BusNames.objectManager, "GetManagedObjects") {
            reply throws(BusFailure) in
            try BackgroundTransfer.all(in: reply).filter { $0.application == id }
        }
    }

    /// Ends a transfer, and forgets it. A file that is complete stays.
    public func cancel(_ transfer: BackgroundTransfer) async throws(ApplicationError) {
        try await call(.cancel, transfer.number)
    }

    /// Tries a transfer again that has failed.
    public func retry(_ transfer: BackgroundTransfer) async throws(ApplicationError) {
        try await call(.retry, transfer.number)
    }

    private func call(_ method: TransferMethod, _ number: UInt64) async throws(ApplicationError) {
        try await ask(TransferNames.path(of: number), TransferMethod.interface, method.rawValue) { _ in }
    }

    /// The delegate has dealt with it.
    func forget(_ transfer: FinishedTransfer) {
        guard transfer.isSuccess, let number = UInt64(transfer.id.prefix { $0 != "." }) else { return }
        Task { try? await call(.cancel, number) }
    }

    private func begin(
        _ url: String, _ given: [(TransferOption, Variant)], _ options: Options
    ) async throws(ApplicationError) -> BackgroundTransfer {
        var entries = given
        if !options.headers.isEmpty { entries.append((.headers, .strings(options.headers))) }
        if let size = options.expectedSize { entries.append((.size, .uint64(size))) }
        if let hash = options.expectedSHA256 { entries.append((.sha256, .string(hash))) }
        if options.replacesTarget { entries.append((.replace, .bool(true))) }
        if options.isDiscretionary { entries.append((.discretionary, .bool(true))) }
        if !options.allowsExpensiveNetworkAccess { entries.append((.onlyUnmetered, .bool(true))) }
        entries.append((.application, .string(Application.shared.id)))
        let path = try await ask(
            TransferNames.root, TransfersMethod.interface, TransfersMethod.begin.rawValue
        ) { message throws(BusFailure) in
            try message.append(url)
            try message.appendDictionary(entries.map { ($0.0.rawValue, $0.1) })
        } read: { reply throws(BusFailure) in
            try reply.readObjectPath()
        }
        guard let begun = try await transfers().first(where: { TransferNames.path(of: $0.number) == path })
        else {
            throw ApplicationError(name: nil, message: "the transfer has been cancelled")
        }
        return begun
    }

    // MARK: The session bus

    private func ask<Value: Sendable>(
        _ path: String, _ interface: String, _ member: String,
        _ body: (borrowing Message) throws(BusFailure) -> Void = { (_) throws(BusFailure) in },
        read: @escaping (borrowing Message) throws(BusFailure) -> Value
    ) async throws(ApplicationError) -> Value {
        let answer: Result<Value, ApplicationError> = await withUnsafeContinuation { continuation in
            send(path, interface, member, body, read) { continuation.resume(returning: $0) }
        }
        return try answer.get()
    }

    /// Calls `done` once.
    private func send<Value>(
        _ path: String, _ interface: String, _ member: String,
        _ body: (borrowing Message) throws(BusFailure) -> Void,
        _ read: @escaping (borrowing Message) throws(BusFailure) -> Value,
        _ done: @escaping (Result<Value, ApplicationError>) -> Void
    ) {
        lastSlot += 1
        let number = lastSlot
        do throws(BusFailure) {
            let bus = try connection()
            let message = try bus.newCall(
                destination: TransferNames.service, path: path, interface: interface, member: member)
            try body(message)
            slots[number] = try bus.callAsync(message) { [weak self] reply in
                self?.drop(number)
                done(Self.answer(reply, read))
            }
        } catch {
            done(.failure(ApplicationError(error)))
        }
        Application.shared.life?.connection.arm()
    }

    private static func answer<Value>(
        _ reply: borrowing Message, _ read: (borrowing Message) throws(BusFailure) -> Value
    ) -> Result<Value, ApplicationError> {
        if let error = reply.error { return .failure(ApplicationError(error)) }
        do throws(BusFailure) {
            return .success(try read(reply))
        } catch {
            return .failure(ApplicationError(error))
        }
    }

    /// A method of its own: Swift 6.0.3 crashes if a dictionary of `self` is changed while a message is borrowed.
    private func drop(_ number: UInt64) { slots[number] = nil }

    private func connection() throws(BusFailure) -> Bus {
        if let bus, bus.isOpen { return bus }
        guard let loop = Application.shared.life?.connection.loop else {
            throw BusFailure(
                operation: "use", subject: "transfers", errno: ENOTCONN,
                message: "the application has not been started")
        }
        let own = getenv("DBUS_SESSION_BUS_ADDRESS").map { String(cString: $0) }
        let usual = getenv("XDG_RUNTIME_DIR").map { "unix:path=\(String(cString: $0))/bus" }
        guard let address = own ?? usual else {
            throw BusFailure(
                operation: "find", subject: "the session bus", errno: ENOENT,
                message: "there is no session bus")
        }
        let bus = try Bus.open(address: address)
        try bus.attach(to: loop)
        self.bus = bus
        return bus
    }
}

/// A transfer, as it was when it was asked for.
public struct BackgroundTransfer: Hashable, Sendable {
    /// The state of a transfer.
    public enum State: String, Sendable, CaseIterable {
        case waiting, running, finished, failed
    }

    let number: UInt64
    let application: String
    /// What ``FinishedTransfer/id`` will be at its end.
    public let id: String
    /// What is transferred.
    public let url: String
    /// The file that a download becomes; nil: there is none.
    public let target: String?
    /// The file that is uploaded; nil: there is none.
    public let upload: String?
    /// Its state.
    public let state: State
    /// The bytes received or, of an upload, sent.
    public let received: UInt64
    /// The number of bytes that it will be; nil: not known.
    public let total: UInt64?
    /// Why it has failed, or what has interrupted it last: a word, ": " and a sentence. nil: nothing has.
    public let error: String?

    fileprivate init?(number: UInt64, _ properties: [String: Value]) {
        func text(_ property: TransferProperty) -> String { properties[property.rawValue]?.stringValue ?? "" }
        func some(_ property: TransferProperty) -> String? { text(property).isEmpty ? nil : text(property) }
        func count(_ property: TransferProperty) -> UInt64 {
            UInt64(properties[property.rawValue]?.uintValue ?? 0)
        }
        guard let state = State(rawValue: text(.state)) else { return nil }
        self.number = number
        self.state = state
        application = text(.application)
        id = text(.id)
        url = text(.url)
        (target, upload, error) = (some(.target), some(.upload), some(.error))
        received = count(.received)
        total = count(.total) > 0 ? count(.total) : nil
    }

    /// Those in an answer of GetManagedObjects.
    fileprivate static func all(in reply: borrowing Message) throws(BusFailure) -> [BackgroundTransfer] {
        var found: [BackgroundTransfer] = []
        guard try reply.enter(.array, "{oa{sa{sv}}}") else { return [] }
        while try reply.enter(.dictEntry, "oa{sa{sv}}") {
            let path = try reply.readObjectPath()
            _ = try reply.enter(.array, "{sa{sv}}")
            while try reply.enter(.dictEntry, "sa{sv}") {
                let interface = try reply.readString()
                let properties = [String: Value](try reply.readDictionary())
                if interface == TransferNames.transfer, let number = TransferNames.number(inPath: path),
                    let transfer = BackgroundTransfer(number: number, properties)
                {
                    found.append(transfer)
                }
                try reply.exit()
            }
            try reply.exit()
            try reply.exit()
        }
        return found.sorted { $0.number < $1.number }
    }
}

/// How a transfer has ended.
public struct FinishedTransfer: Hashable, Sendable {
    /// Names this end of the transfer: ``BackgroundTransfer/id``.
    public let id: String
    /// Everything that appstated says about it.
    public let result: [String: Value]

    /// What was transferred.
    public var url: String { text(.url) ?? "" }
    /// The file that a download has become; nil: there is none.
    public var target: String? { text(.target) }
    /// The file that was uploaded; nil: there is none.
    public var upload: String? { text(.upload) }
    /// Whether all of it was transferred, and has the expected size and hash.
    public var isSuccess: Bool { text(.state) == TransferState.finished.rawValue }
    /// Why it has failed: a word, such as `network`, `http`, `hash` or `no-space`, then ": " and a sentence. nil: it has
    /// not.
    public var error: String? { text(.error) }

    private func text(_ key: TransferResult) -> String? { result[key.rawValue]?.stringValue }
}
