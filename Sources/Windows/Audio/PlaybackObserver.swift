import Glibc
import Linux

/// Watches which processes play or record sound, on one server.
public protocol SoundObserver: AnyObject {
    /// The processes that play or record, as of the last dispatch.
    var players: Set<Int32> { get }
    /// What is watched, for the user.
    var subject: String { get }
    /// Readable when there is something to dispatch. Open while the observer lives.
    var descriptor: Int32 { get }
    /// Handles everything that has arrived, without waiting.
    ///
    /// - Throws: `ended` when the server is gone, or sends an invalid message.
    func dispatch() throws(ObserverFailure)
}

/// Watches which processes play or record sound, by the native protocol of PulseAudio, which PipeWire implements
/// too (pipewire-pulse).
///
/// It needs only a small part of the protocol: to identify itself, to be notified that streams have changed,
/// and to request all streams. libpulse could do that too, but depends on two dozen libraries.
public final class PlaybackObserver: SoundObserver {
    /// The processes with a stream that plays or records, which means that it is not paused (“corked”), as of the last
    /// dispatch. A stream that only measures how loud it is does not count.
    ///
    /// There may be several for one stream: see `processes`.
    public private(set) var players: Set<Int32> = []
    private let proc = Proc()
    /// The processes of the clients with a stream, as far as it took a search to find them.
    private var found: [Client: Set<Int32>] = [:]
    /// The clients with streams, as far as they were listed.
    private var clients: Set<UInt32> = []
    /// The processes that play, while the streams that record were requested.
    private var playing: Set<Int32> = []
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
        /// All streams of a kind were requested.
        case askingForPlayback, askingForRecording
        case idle
    }

    /// What a client says about itself.
    private struct Client: Hashable {
        /// The server never uses it again.
        let number: UInt32
        /// Its process id, in its own PID namespace.
        let pid: Int32
        /// The name of its program's file.
        let program: String?
    }

    /// The number of a stream's values, and the places of some of them (PulseAudio's src/pulsecore/protocol-native.c,
    /// `sink_input_fill_tagstruct` and `source_output_fill_tagstruct`).
    private struct Layout {
        let count: Int
        let client = 3
        let resampler: Int
        let properties: Int
        let isCorked: Int

        /// Index, name, module, client, sink; sample specification, channels, volumes, two latencies, resampler and
        /// driver; mute, properties, corked, and whether it has a volume, and one that can be set.
        static let playback = Layout(count: 17, resampler: 10, properties: 13, isCorked: 14)
        /// Index, name, module, client, source; sample specification, channels, two latencies, resampler and driver;
        /// properties, corked.
        static let recording = Layout(count: 13, resampler: 9, properties: 11, isCorked: 12)
    }

    /// Commands (PulseAudio's src/pulsecore/native-common.h).
    private enum Command: UInt32 {
        case error = 0
        case reply = 2
        case authenticate = 8
        case setClientName = 9
        case listSinkInputs = 30
        case listSourceOutputs = 32
        case subscribe = 35
        case subscribeEvent = 66
    }

    /// The newest version that describes streams as they are read here: PulseAudio 0.9.21 and later support it.
    private static let version: UInt32 = 20
    /// PA_SUBSCRIPTION_MASK_SINK_INPUT and PA_SUBSCRIPTION_MASK_SOURCE_OUTPUT: streams that play, and that record.
    private static let streams: UInt32 = 4 | 8
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

    /// Connects, and asks which processes play or record; that is known after a few dispatches.
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

    public var subject: String { "streams of the sound server at \(path)" }
    public var descriptor: Int32 { socket.rawValue }

    public func dispatch() throws(ObserverFailure) {
        let why = LocalSocket.receive(&unread, atMost: Self.longestPacket, from: socket.rawValue)
        if let why { throw ended(why) }
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
        case .authenticate, .setClientName, .listSinkInputs, .listSourceOutputs, .subscribe, nil: break
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
            try send(.subscribe) { $0.append(Self.streams) }
        case .subscribing:
            // First the changes, then the present streams.
            try ask()
        case .askingForPlayback:
            playing = try active(packet, .playback)
            phase = .askingForRecording
            try send(.listSourceOutputs) { _ in }
        case .askingForRecording:
            players = playing.union(try active(packet, .recording))
            found = found.filter { clients.contains($0.key.number) }
            phase = .idle
        case .idle: break
        }
    }

    private func ask() throws(ObserverFailure) {
        isStale = false
        clients = []
        phase = .askingForPlayback
        try send(.listSinkInputs) { _ in }
    }

    /// The processes of the streams that are in use.
    private func active(_ packet: TagStruct, _ layout: Layout) throws(ObserverFailure) -> Set<Int32> {
        var packet = packet
        var processes: Set<Int32> = []
        while !packet.isAtEnd {
            var values: [TagStruct.Value] = []
            for _ in 0..<layout.count {
                guard let value = packet.next() else { throw ended("its streams are not understood") }
                values.append(value)
            }
            guard case .properties(let properties) = values[layout.properties],
                case .bool(let isCorked) = values[layout.isCorked],
                case .number(let client) = values[layout.client]
            else {
                throw ended("its streams are not understood")
            }
            clients.insert(client)
            if isCorked || Self.measures(values[layout.resampler], properties) { continue }
            processes.formUnion(self.processes(of: client, properties))
        }
        return processes
    }

    /// Whether a stream only measures how loud another one is, for a level meter (PA_STREAM_PEAK_DETECT): it
    /// gets the peaks instead of the sound.
    private static func measures(_ resampler: TagStruct.Value, _ properties: [String: String]) -> Bool {
        // The name of the resampler with PulseAudio; a property with PipeWire.
        resampler == .text("peaks") || properties["resample.peaks"] == "true"
    }

    /// The processes that a client may be: there is no other source than what it says about itself. The number of a
    /// client on another machine is meaningless here.
    private func processes(of client: UInt32, _ properties: [String: String]) -> Set<Int32> {
        if let host, let theirs = properties["application.process.host"], theirs != host { return [] }
        guard let pid = properties["application.process.id"].flatMap({ Int32($0) }), pid > 0 else {
            return []
        }
        let claim = Client(number: client, pid: pid, program: properties["application.process.binary"])
        if let known = found[claim] { return known }
        if let program = claim.program, (try? proc.program(of: pid)) == program {
            return [pid]
        }
        let processes = search(for: claim)
        found[claim] = processes
        return processes
    }

    /// A client in a PID namespace of its own, as in a Flatpak, reports its id in that namespace. So each process that
    /// has this id in its own namespace may be the client. Of several, those that run the program that the client
    /// names are kept.
    private func search(for claim: Client) -> Set<Int32> {
        let processes = proc.processes(knowingThemselvesAs: claim.pid)
        guard let program = claim.program else { return Set(processes) }
        let named = processes.filter { (try? proc.program(of: $0)) == program }
        return Set(named.isEmpty ? processes : named)
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
        guard LocalSocket.send(packet, over: socket.rawValue) else {
            throw ended("it does not accept a request")
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

extension Proc {
    /// The processes that have this id in their own PID namespaces, the mount's or one below: a program in a sandbox
    /// reports that id about itself.
    ///
    /// - Returns: none if the mount shows no processes.
    func processes(knowingThemselvesAs pid: Int32) -> [Int32] {
        ((try? processes()) ?? []).filter { process in
            let status = (try? TextFile.read("\(root)/\(process)/status")) ?? ""
            // The ids in all namespaces that show it, its own at the end. A kernel without PID namespaces has no such
            // line.
            let ids = status.split(separator: "\n").first { $0.hasPrefix("NSpid:") }?.split(separator: "\t")
            return ids?.last.flatMap { Int32($0) } ?? process == pid
        }
    }
}
