import Glibc
import Linux

/// Watches which processes have a running node in the graph of PipeWire: a stream, a filter that the sound of others
/// goes through, a client of JACK, a camera that is used.
///
/// It speaks the small part of PipeWire's native protocol that lists nodes and their states. libpipewire could do that
/// too, but it loads plugins and starts threads.
public final class PipeWireObserver: SoundObserver {
    public var players: Set<Int32> {
        Set(nodes.values.filter(\.isRunning).compactMap { $0.client.flatMap { clients[$0] } })
    }
    private let socket: Descriptor
    private let path: String
    private var unread: [UInt8] = []
    private var sequence: UInt32 = 0
    /// The processes of the clients, by the numbers of their objects.
    private var clients: [Int32: Int32] = [:]
    /// The nodes, by our numbers for them.
    private var nodes: [Int32: Node] = [:]
    /// Numbers that may be given again. A number that was never given is the next one.
    private var freeNumbers: [Int32] = []
    private var nextNumber: Int32 = 3

    private struct Node {
        let number: Int32
        let client: Int32?
        var isRunning = false
        /// It only measures how loud another one is.
        var isMeter = false
    }

    /// The objects that exist from the beginning, or that we name (src/modules/module-protocol-native of PipeWire).
    private static let (core, ownClient, registry): (Int32, Int32, Int32) = (0, 1, 2)
    /// The versions of the interfaces.
    private static let version: Int32 = 3
    private static let headerLength = 16
    /// PipeWire sends no longer messages: its buffers begin with 16 KiB, and grow for long lists of parameters.
    private static let longestMessage = 16 << 20
    /// PW_NODE_STATE_RUNNING, and the bit that says that the properties have changed (src/pipewire/node.h).
    private static let (running, hasProperties): (Int64, Int64) = (3, 1 << 3)

    /// The socket of this session's PipeWire; nil if the environment does not name it.
    public static var defaultPath: String? {
        let name = Environment["PIPEWIRE_REMOTE"] ?? "pipewire-0"
        if name.utf8.first == UInt8(ascii: "/") { return name }
        return (Environment["PIPEWIRE_RUNTIME_DIR"] ?? Environment["XDG_RUNTIME_DIR"]).map { "\($0)/\(name)" }
    }

    /// Connects, and asks for the nodes; they are known after a few dispatches.
    ///
    /// - Parameter path: the server's socket.
    /// - Throws: `unreachable` if no server listens.
    public init(path: String) throws(ObserverFailure) {
        self.path = path
        socket = try LocalSocket.connect(to: path)
        guard fcntl(socket.rawValue, F_SETFL, O_NONBLOCK) == 0 else {
            throw .unreachable("PipeWire at \(path): \(String(cString: strerror(errno)))")
        }
        // Hello, UpdateProperties, GetRegistry.
        try send(Self.core, 1, [.int(Self.version)])
        try send(
            Self.ownClient, 2,
            [.list([.int(1), .text("application.name"), .text("appstate-session")])])
        try send(Self.core, 5, [.int(Self.version), .int(Self.registry)])
    }

    public var subject: String { "nodes of PipeWire at \(path)" }
    public var descriptor: Int32 { socket.rawValue }

    public func dispatch() throws(ObserverFailure) {
        if let why = LocalSocket.receive(&unread, from: socket.rawValue) { throw ended(why) }
        while unread.count >= Self.headerLength {
            let words = unread.withUnsafeBytes { bytes in
                (0..<2).map { bytes.loadUnaligned(fromByteOffset: 4 * $0, as: UInt32.self) }
            }
            let length = Int(words[1] & 0xff_ffff)
            guard length <= Self.longestMessage else { throw ended("its message is too long") }
            guard unread.count >= Self.headerLength + length else { return }
            var pod = Pod(ArraySlice(unread[Self.headerLength..<Self.headerLength + length]))
            unread.removeFirst(Self.headerLength + length)
            guard let number = Int32(exactly: words[0]), case .fields(let fields)? = pod.next() else {
                continue
            }
            try take(number, words[1] >> 24, Pod(fields))
        }
    }

    // MARK: Messages

    private func take(_ number: Int32, _ event: UInt32, _ fields: Pod) throws(ObserverFailure) {
        var fields = fields
        switch (number, event) {
        case (Self.core, 2):
            // Ping.
            guard let id = fields.int(), let sequence = fields.int() else { return }
            try send(Self.core, 3, [.int(id), .int(sequence)])
        case (Self.core, 3):
            // Error. That of an object that has ended meanwhile does not matter.
            if fields.int() == Self.core { throw ended("it refuses") }
        case (Self.core, 4):
            // RemoveId.
            if let id = fields.int(), nodes.removeValue(forKey: id) != nil { freeNumbers.append(id) }
        case (Self.registry, 0): try takeGlobal(fields)
        case (Self.registry, 1):
            guard let id = fields.int() else { return }
            clients[id] = nil
            for (own, node) in nodes where node.number == id { nodes[own]?.isRunning = false }
        case (_, 0): takeInformation(number, fields)
        default: break
        }
    }

    /// An object exists: its number, permissions, type, version and properties.
    private func takeGlobal(_ fields: Pod) throws(ObserverFailure) {
        var fields = fields
        guard let id = fields.int(), fields.int() != nil, case .text(let type?)? = fields.next(),
            fields.int() != nil
        else { return }
        let properties = fields.properties()
        if type == "PipeWire:Interface:Client" {
            clients[id] = properties["pipewire.sec.pid"].flatMap { Int32($0) }
        } else if type == "PipeWire:Interface:Node" {
            let own = freeNumbers.popLast() ?? nextNumber
            if own == nextNumber { nextNumber += 1 }
            nodes[own] = Node(number: id, client: properties["client.id"].flatMap { Int32($0) })
            // Bind.
            try send(Self.registry, 1, [.int(id), .text(type), .int(Self.version), .int(own)])
        }
    }

    /// Information about a node: its number, the most ports, what has changed, ports, state, error and properties.
    private func takeInformation(_ number: Int32, _ fields: Pod) {
        var fields = fields
        guard var node = nodes[number], fields.int() != nil, fields.int() != nil, fields.int() != nil,
            let changed = fields.number(), fields.int() != nil, fields.int() != nil,
            let state = fields.number(), fields.next() != nil
        else { return }
        if changed & Self.hasProperties != 0 {
            let properties = fields.properties()
            node.isMeter = ["stream.monitor", "resample.peaks"].contains { properties[$0] == "true" }
        }
        // The state is there even if it is not what has changed.
        node.isRunning = state == Self.running && !node.isMeter
        nodes[number] = node
    }

    private func ended(_ why: String) -> ObserverFailure { .ended("PipeWire at \(path): \(why)") }

    // MARK: The socket

    private func send(_ object: Int32, _ method: UInt32, _ fields: [Pod.Value]) throws(ObserverFailure) {
        let body = Pod.bytes(.list(fields))
        let header = [UInt32(object), method << 24 | UInt32(body.count), sequence, 0]
        sequence &+= 1
        let packet = header.flatMap { Pod.bytes($0) } + body
        guard LocalSocket.send(packet, over: socket.rawValue) else {
            throw ended("it does not accept a request")
        }
    }
}

/// Values of PipeWire's protocol (spa/pod/pod.h): a size, a type, and the content, in units of eight bytes.
struct Pod {
    enum Value {
        case int(Int32)
        case text(String?)
        /// A struct, to be written.
        case list([Value])
        /// A struct that was read.
        case fields(ArraySlice<UInt8>)
        /// A number of another type than `int`.
        case number(Int64)
        case other
    }

    private enum Kind: UInt32 {
        case id = 3
        case int = 4
        case long = 5
        case text = 8
        case list = 14
    }

    private var bytes: ArraySlice<UInt8>

    init(_ bytes: ArraySlice<UInt8>) { self.bytes = bytes }

    // MARK: Reading

    /// The next value; nil at the end, or if it is cut off.
    mutating func next() -> Value? {
        guard bytes.count >= 8, let size = word(at: 0), let kind = word(at: 4) else { return nil }
        let body = bytes.dropFirst(8).prefix(Int(size))
        guard body.count == Int(size) else { return nil }
        defer { bytes = bytes.dropFirst(8 + (Int(size) + 7) & ~7) }
        switch Kind(rawValue: kind) {
        case .int?: return word(at: 8).flatMap { size >= 4 ? .int(Int32(bitPattern: $0)) : nil }
        // A node's state is -1 if it has failed.
        case .id?: return word(at: 8).flatMap { size >= 4 ? .number(Int64(Int32(bitPattern: $0))) : nil }
        case .long?:
            guard size >= 8, let low = word(at: 8), let high = word(at: 12) else { return nil }
            return .number(Int64(bitPattern: UInt64(high) << 32 | UInt64(low)))
        case .text?: return .text(String(decoding: body.prefix { $0 != 0 }, as: UTF8.self))
        case .list?: return .fields(body)
        case nil: return kind == 1 ? .text(nil) : .other
        }
    }

    mutating func int() -> Int32? {
        if case .int(let value)? = next() { value } else { nil }
    }

    mutating func number() -> Int64? {
        if case .number(let value)? = next() { value } else { nil }
    }

    /// A struct of a count, and as many keys with their values; empty if there is none.
    mutating func properties() -> [String: String] {
        guard case .fields(let fields)? = next() else { return [:] }
        var pod = Pod(fields)
        var properties: [String: String] = [:]
        guard let count = pod.int() else { return [:] }
        for _ in 0..<max(count, 0) {
            guard case .text(let key?)? = pod.next(), case .text(let value)? = pod.next() else { break }
            properties[key] = value
        }
        return properties
    }

    private func word(at offset: Int) -> UInt32? {
        guard bytes.count >= offset + 4 else { return nil }
        return bytes.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: offset, as: UInt32.self) }
    }

    // MARK: Writing

    static func bytes(_ value: Value) -> [UInt8] {
        let (kind, body): (Kind, [UInt8])
        switch value {
        case .int(let number): (kind, body) = (.int, bytes(UInt32(bitPattern: number)))
        case .text(let text): (kind, body) = (.text, Array((text ?? "").utf8) + [0])
        case .list(let values): (kind, body) = (.list, values.flatMap { bytes($0) })
        case .fields, .number, .other: preconditionFailure("a value that is only read")
        }
        return bytes(UInt32(body.count)) + bytes(kind.rawValue) + body
            + [UInt8](repeating: 0, count: -body.count & 7)
    }

    /// In the order of this machine.
    static func bytes(_ word: UInt32) -> [UInt8] { withUnsafeBytes(of: word) { Array($0) } }
}
