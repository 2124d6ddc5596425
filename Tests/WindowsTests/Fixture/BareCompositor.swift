import Foundation
import Glibc
import TestSupport

/// A Wayland server without windows, for what real compositors do only at times. It has the globals that a test gives
/// it, and answers `wl_display.sync`; it ignores all other requests. It ends when it is released.
final class BareCompositor {
    /// In the form of WAYLAND_DISPLAY, with its directory.
    let display: String
    private let directory: String
    private let service: Service

    /// - Parameters:
    ///   - globals: the version of each interface.
    ///   - refused: interfaces whose binding makes it close the client's connection.
    ///   - path: where it listens, below its directory.
    init(
        globals: [String: UInt32] = [:], refusing refused: Set<String> = [], at path: String = "wayland-b"
    ) throws {
        directory = try TestDesktop.directory()
        display = "\(directory)/\(path)"
        let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        service = Service(descriptor, globals, refused)
        try FileManager.default.createDirectory(
            atPath: URL(fileURLWithPath: display).deletingLastPathComponent().path,
            withIntermediateDirectories: true)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: display.utf8) }
        let size = socklen_t(MemoryLayout<sockaddr_un>.size)
        let result = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, size) }
        }
        guard result == 0, listen(descriptor, 8) == 0 else {
            throw TestFailure("cannot listen at \(display)")
        }
        let service = service
        Thread.detachNewThread { service.run() }
    }

    deinit {
        service.end()
        try? FileManager.default.removeItem(atPath: directory)
    }

    /// The environment of an agent that has nothing else to watch.
    var environment: [String: String?] {
        [
            "XDG_RUNTIME_DIR": directory, "WAYLAND_DISPLAY": display, "DISPLAY": nil, "SWAYSOCK": nil,
            "I3SOCK": nil, "DBUS_SESSION_BUS_ADDRESS": nil,
        ]
    }

    /// The directory of its socket, in the form of XDG_RUNTIME_DIR.
    var runtime: String { directory }

    /// The version in which a client has bound an interface last; nil: none has.
    func bound(_ interface: String) -> UInt32? { service.bound(interface) }

    /// Disconnects all clients. From then on it has no globals.
    func forget() { service.forget() }
}

/// What the threads of the server share.
private final class Service: @unchecked Sendable {
    private let descriptor: Int32
    private let refused: Set<String>
    private let lock = NSLock()
    private var globals: [String: UInt32]
    private var versions: [String: UInt32] = [:]
    private var clients: Set<Int32> = []

    init(_ descriptor: Int32, _ globals: [String: UInt32], _ refused: Set<String>) {
        self.descriptor = descriptor
        self.globals = globals
        self.refused = refused
    }

    deinit { close(descriptor) }

    func bound(_ interface: String) -> UInt32? { lock.withLock { versions[interface] } }

    func forget() {
        lock.withLock {
            globals = [:]
            disconnect()
        }
    }

    /// The threads end, the last of which releases this object.
    func end() {
        shutdown(descriptor, Int32(SHUT_RDWR))
        lock.withLock { disconnect() }
    }

    private func disconnect() {
        for client in clients { shutdown(client, Int32(SHUT_RDWR)) }
    }

    func run() {
        while true {
            let client = accept(descriptor, nil, nil)
            guard client >= 0 else { return }
            lock.withLock { _ = clients.insert(client) }
            Thread.detachNewThread { self.serve(client) }
        }
    }

    private func serve(_ client: Int32) {
        var registry: UInt32 = 0
        var unread: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4_096)
        var isServed = true
        while isServed {
            let count = recv(client, &buffer, buffer.count, 0)
            guard count > 0 else { break }
            unread += buffer[..<count]
            while isServed, let request = Self.takeRequest(&unread) {
                isServed = answer(request, of: client, &registry)
            }
        }
        lock.withLock { _ = clients.remove(client) }
        close(client)
    }

    // MARK: The Wayland protocol, "Wire Format"

    /// The first whole request; nil: there is none yet.
    private static func takeRequest(_ unread: inout [UInt8]) -> [UInt8]? {
        guard unread.count >= 8 else { return nil }
        let size = Int(word(unread, at: 4) >> 16)
        guard size >= 8, size <= unread.count else { return nil }
        let request = Array(unread[..<size])
        unread.removeFirst(size)
        return request
    }

    /// - Returns: whether the client remains connected.
    private func answer(_ request: [UInt8], of client: Int32, _ registry: inout UInt32) -> Bool {
        let (object, code) = (Self.word(request, at: 0), Self.word(request, at: 4) & 0xFFFF)
        switch (object, code) {
        case (1, 0):
            // wl_display.sync: wl_callback.done, then wl_display.delete_id.
            let callback = Self.word(request, at: 8)
            Self.send(callback, 0, Self.bytes(0), to: client)
            Self.send(1, 1, Self.bytes(callback), to: client)
        case (1, 1):
            // wl_display.get_registry: wl_registry.global for each.
            registry = Self.word(request, at: 8)
            let present = lock.withLock { globals.sorted { $0.key < $1.key } }
            for (number, global) in present.enumerated() {
                let body = Self.bytes(UInt32(number + 1)) + Self.text(global.key) + Self.bytes(global.value)
                Self.send(registry, 0, body, to: client)
            }
        case (registry, 0):
            // wl_registry.bind: the global's name, the interface, its version and the new object.
            let length = Int(Self.word(request, at: 12))
            let interface = String(decoding: request[16..<16 + length - 1], as: UTF8.self)
            let version = Self.word(request, at: 16 + (length + 3) / 4 * 4)
            lock.withLock { versions[interface] = version }
            return !refused.contains(interface)
        default: break
        }
        return true
    }

    private static func send(_ object: UInt32, _ code: UInt32, _ body: [UInt8], to client: Int32) {
        let message = bytes(object) + bytes(UInt32(8 + body.count) << 16 | code) + body
        _ = Glibc.send(client, message, message.count, Int32(MSG_NOSIGNAL))
    }

    private static func word(_ bytes: [UInt8], at offset: Int) -> UInt32 {
        bytes.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: offset, as: UInt32.self) }
    }

    private static func bytes(_ word: UInt32) -> [UInt8] { withUnsafeBytes(of: word) { Array($0) } }

    /// With its length, a NUL, and as many more as make a whole number of words.
    private static func text(_ text: String) -> [UInt8] {
        let length = text.utf8.count + 1
        let padding = (length + 3) / 4 * 4 - text.utf8.count
        return bytes(UInt32(length)) + Array(text.utf8) + [UInt8](repeating: 0, count: padding)
    }
}
