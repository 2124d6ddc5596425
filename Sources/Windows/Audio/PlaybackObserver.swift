import Glibc
import Linux

/// Watches which processes play sound, by the native protocol of PulseAudio, which PipeWire implements too
/// (pipewire-pulse).
///
/// It needs only a small part of the protocol: to identify itself, to be notified that streams have changed,
/// and to request all streams. libpulse could do that too, but depends on two dozen libraries.
public final class PlaybackObserver {
    /// The processes with a stream that plays, which means that it is not paused (“corked”), as of the last dispatch.
    public private(set) var players: Set<Int32> = []
    private let socket: Descriptor
    private let path: String
    private var unread: [UInt8] = []
    private var phase = Phase.authenticating
    /// Streams have changed since they were requested.
    private var isStale = false
    /// The name of this machine, as clients report it for themselves.
    private let host: String?

    private enum Phase: Equatable {
        case authenticating, introducing, subscribing
        /// All streams were requested.
        case asking
        case idle
    }

    /// Commands (PulseAudio's src/pulsecore/native-common.h).
    private enum Command: UInt32 {
        case error = 0
        case reply = 2
        case authenticate = 8
        case setClientName = 9
        case listSinkInputs = 30
        case subscribe = 35
        case subscribeEvent = 66
    }

    /// The newest version that describes streams as they are read here: PulseAudio 0.9.21 and later support it.
    private static let version: UInt32 = 20
    /// PA_SUBSCRIPTION_MASK_SINK_INPUT: streams that play.
    private static let sinkInputs: UInt32 = 4
    /// The channel of a packet that carries no stream's data.
    private static let none = UInt32.max
    /// Length, channel, two words of an offset, flags: each of four bytes.
    private static let headerLength = 20
    /// No list of streams is longer; PulseAudio itself accepts no longer packet.
    private static let longestPacket = 16 << 20

    /// The socket of this session's sound server; nil if the environment does not name it.
    public static var defaultPath: String? {
        if let directory = Environment["PULSE_RUNTIME_PATH"] { return directory + "/native" }
        return Environment["XDG_RUNTIME_DIR"].map { $0 + "/pulse/native" }
    }

    /// Connects, and asks which processes play sound; that is known after a few dispatches.
    ///
    /// - Parameter path: the server's socket.
    /// - Throws: `unreachable` if no server listens.
    public init(path: String) throws(ObserverFailure) {
        self.path = path
        socket = try LocalSocket.connect(to: path)
        var name = utsname()
        host =
            uname(&name) == 0
            ? withUnsafeBytes(of: name.nodename) { ObservedWindow.text($0) } : nil
        guard fcntl(socket.rawValue, F_SETFL, O_NONBLOCK) == 0 else {
            throw .unreachable("the sound server at \(path): \(String(cString: strerror(errno)))")
        }
        // The server identifies us by what the kernel sends along with the first packet, but from the beginning only if
        // we ask for it: unix(7), "SO_PASSCRED". The server may have accepted us already and not asked for it yet
        // itself.
        var isOn: Int32 = 1
        setsockopt(socket.rawValue, SOL_SOCKET, SO_PASSCRED, &isOn, socklen_t(MemoryLayout<Int32>.size))
        try send(.authenticate) {
            $0.append(Self.version)
            // The cookie is for other users and machines.
            $0.append(bytes: [UInt8](repeating: 0, count: 256))
        }
    }

    /// What is watched, for the user.
    public var subject: String { "streams of the sound server at \(path)" }
    /// Readable when there is something to dispatch. Open while the observer lives.
    public var descriptor: Int32 { socket.rawValue }

    /// Handles everything that has arrived, without waiting.
    ///
    /// - Throws: `ended` when the server is gone, or sends an invalid message.
    public func dispatch() throws(ObserverFailure) {
        try receive()
        while let packet = try takePacket() { try take(packet) }
        if isStale, phase == .idle { try ask() }
    }

    // MARK: The protocol

    private func take(_ packet: TagStruct) throws(ObserverFailure) {
        var packet = packet
        guard let command = packet.nextNumber(), packet.nextNumber() != nil else {
            throw ended("its message is not understood")
        }
        switch Command(rawValue: command) {
        case .reply: try takeReply(packet)
        case .subscribeEvent: isStale = true
        case .error: throw ended("it refuses: error \(packet.nextNumber() ?? 0) while \(phase)")
        case .authenticate, .setClientName, .listSinkInputs, .subscribe, nil: break
        }
    }

    /// Only one request is pending at a time, so it is known which one is answered.
    private func takeReply(_ packet: TagStruct) throws(ObserverFailure) {
        switch phase {
        case .authenticating:
            var packet = packet
            // The upper half says which memory may be shared.
            guard let version = packet.nextNumber().map({ $0 & 0xFFFF }), version >= Self.version else {
                throw ended("its version of the protocol is too old")
            }
            phase = .introducing
            try send(.setClientName) {
                $0.append(["application.name": "appstate-session", "application.process.id": "\(getpid())"])
            }
        case .introducing:
            phase = .subscribing
            try send(.subscribe) { $0.append(Self.sinkInputs) }
        case .subscribing:
            // First the changes, then the present streams.
            try ask()
        case .asking:
            players = try streams(packet)
            phase = .idle
        case .idle: break
        }
    }

    private func ask() throws(ObserverFailure) {
        isStale = false
        phase = .asking
        try send(.listSinkInputs) { _ in }
    }

    /// Each stream has: index, name, module, client, sink; sample specification, channels, volumes, two latencies,
    /// resampler and driver; mute, properties, corked, and whether it has a volume, and one that can be set.
    private func streams(_ packet: TagStruct) throws(ObserverFailure) -> Set<Int32> {
        var packet = packet
        var players: Set<Int32> = []
        while !packet.isAtEnd {
            var values: [TagStruct.Value] = []
            for _ in 0..<17 {
                guard let value = packet.next() else { throw ended("its streams are not understood") }
                values.append(value)
            }
            guard case .properties(let properties) = values[13], case .bool(let isCorked) = values[14] else {
                throw ended("its streams are not understood")
            }
            if !isCorked, let process = process(properties) { players.insert(process) }
        }
        return players
    }

    /// The process that the client reports; there is no other source. The number of a client on another
    /// machine is meaningless here.
    private func process(_ properties: [String: String]) -> Int32? {
        if let host, let theirs = properties["application.process.host"], theirs != host { return nil }
        return properties["application.process.id"].flatMap { Int32($0) }.flatMap { $0 > 0 ? $0 : nil }
    }

    private func ended(_ why: String) -> ObserverFailure { .ended("the sound server at \(path): \(why)") }

    // MARK: The socket

    private func send(
        _ command: Command, _ fill: (inout TagStruct) -> Void
    ) throws(ObserverFailure) {
        var body = TagStruct()
        body.append(command.rawValue)
        // Our number for the request, which the answer repeats. There is only one request.
        body.append(UInt32(0))
        fill(&body)
        let header = [UInt32(body.bytes.count), Self.none, 0, 0, 0].flatMap(TagStruct.bigEndian)
        let packet = header + body.bytes
        // A few hundred bytes, one request after the other: the socket has room for them.
        let count = Glibc.send(socket.rawValue, packet, packet.count, Int32(MSG_NOSIGNAL))
        guard count == packet.count else { throw ended("it does not accept a request") }
    }

    private func receive() throws(ObserverFailure) {
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = recv(socket.rawValue, &buffer, buffer.count, 0)
            if count > 0 {
                unread += buffer.prefix(count)
                guard unread.count <= Self.longestPacket else { throw ended("its message is too long") }
                // The rest makes the descriptor readable again.
                if count < buffer.count { return }
            } else if count < 0, errno == EINTR {
                continue
            } else if count < 0, errno == EAGAIN {
                return
            } else {
                throw ended("it has ended")
            }
        }
    }

    private func takePacket() throws(ObserverFailure) -> TagStruct? {
        guard unread.count >= Self.headerLength else { return nil }
        let length = unread.prefix(4).reduce(0) { $0 << 8 | Int($1) }
        guard length <= Self.longestPacket else { throw ended("its message is too long") }
        guard unread.count >= Self.headerLength + length else { return nil }
        let packet = Array(unread[Self.headerLength..<Self.headerLength + length])
        unread.removeFirst(Self.headerLength + length)
        return TagStruct(packet[...])
    }
}
