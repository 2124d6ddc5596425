import Foundation
import Glibc
import Testing

@testable import Linux

@Suite("UnixSockets, on made-up answers")
struct UnixSocketsTextTests {
    /// A message of netlink(7).
    static func message(_ type: UInt16, _ payload: [UInt8]) -> [UInt8] {
        let length = 16 + payload.count
        let padding = [UInt8](repeating: 0, count: (4 - length % 4) % 4)
        return bytes(UInt32(length)) + bytes(type) + [UInt8](repeating: 0, count: 10) + payload + padding
    }

    /// A socket of type `type` in a state, with attributes.
    static func socket(_ type: UInt8, _ state: UInt8, _ inode: UInt32, _ attributes: [UInt8] = []) -> [UInt8]
    {
        message(20, [1, type, state, 0] + bytes(inode) + [UInt8](repeating: 7, count: 8) + attributes)
    }

    static func attribute(_ type: UInt16, _ value: [UInt8]) -> [UInt8] {
        let length = 4 + value.count
        return bytes(UInt16(length)) + bytes(type) + value
            + [UInt8](repeating: 0, count: (4 - length % 4) % 4)
    }

    static func bytes(_ value: some FixedWidthInteger) -> [UInt8] {
        withUnsafeBytes(of: value) { Array($0) }
    }

    private func read(
        _ bytes: [UInt8], limit: Int = .max
    ) -> (reports: [SocketDiagnosis.Report], outcome: SocketReports.Outcome) {
        var reports: [SocketDiagnosis.Report] = []
        let outcome = bytes.withUnsafeBytes {
            SocketReports(part: $0).each(SocketDiagnosis.Report.init) { report in
                reports.append(report)
                return reports.count < limit
            }
        }
        return (reports, outcome)
    }

    @Test("sockets are read with their attributes")
    func reports() {
        let all =
            Self.socket(
                1, 1, 5,
                Self.attribute(4, Self.bytes(UInt32(37)) + Self.bytes(UInt32(9)))
                    + Self.attribute(2, Self.bytes(UInt32(6))) + Self.attribute(99, [1]))
            + Self.socket(1, 1, 6, Self.attribute(0, Array("/run/a".utf8) + [0]))
            + Self.socket(5, 10, 7, Self.attribute(0, [0] + Array("b".utf8) + [0]))
            + Self.socket(1, 1, 8, Self.attribute(2, Self.bytes(UInt32(0))) + Self.attribute(0, []))
        let expected = [
            SocketDiagnosis.Report(type: 1, isListening: false, inode: 5, waiting: 37, peer: 6),
            SocketDiagnosis.Report(type: 1, isListening: false, inode: 6, name: "/run/a"),
            SocketDiagnosis.Report(type: 5, isListening: true, inode: 7, name: "@b@"),
            SocketDiagnosis.Report(type: 1, isListening: false, inode: 8),
        ]
        #expect(read(all).reports == expected)
        #expect(read(all).outcome == .more)
        let ended = read(all + Self.message(3, Self.bytes(Int32(0))) + Self.socket(1, 1, 9))
        #expect(ended.reports == expected)
        #expect(ended.outcome == .done)
        let limited = read(all, limit: 2)
        #expect(limited.reports.count == 2)
        #expect(limited.outcome == .done)
    }

    @Test("refusals and invalid answers are reported as failures")
    func refusals() {
        #expect(read([]).outcome == .more)
        #expect(read(Self.message(2, Self.bytes(Int32(-ENOENT)))).outcome == .failed(ENOENT))
        #expect(read(Self.message(2, Self.bytes(Int32(0)))).outcome == .done)
        for number in [Int32.min, 1, -4096] {
            #expect(read(Self.message(2, Self.bytes(number))).outcome == .failed(EBADMSG))
        }
        #expect(read(Self.message(2, [])).outcome == .failed(EBADMSG))
        #expect(read(Self.message(20, [1, 1])).outcome == .failed(EBADMSG))
        #expect(read([1, 2, 3]).outcome == .failed(EBADMSG))
        #expect(read(Array(Self.socket(1, 1, 5).dropLast())).outcome == .failed(EBADMSG))
        #expect(read(Self.socket(1, 1, 5, [3, 0, 0, 0])).outcome == .failed(EBADMSG))
        #expect(read(Self.socket(1, 1, 5, [9, 0, 0, 0, 0])).outcome == .failed(EBADMSG))
    }

    @Test("no input traps")
    func noise() {
        let seed = UInt64.random(in: .min ... .max)
        print("seed of the noise: \(seed)")
        var random = SplitMix(state: seed)
        let base =
            Self.socket(1, 1, 5, Self.attribute(4, Self.bytes(UInt64(37))) + Self.attribute(0, [0, 65]))
            + Self.socket(1, 1, 6, Self.attribute(2, Self.bytes(UInt32(6))))
        var count = 0
        for _ in 0..<20_000 {
            var input = base
            for _ in 0..<Int.random(in: 0...4, using: &random) {
                input[Int.random(in: 0..<input.count, using: &random)] = random.byte()
            }
            if Bool.random(using: &random) {
                input.removeLast(Int.random(in: 0...input.count, using: &random))
            }
            count += read(input).reports.count
        }
        #expect(count > 1000, "seed \(seed)")
    }
}

@Suite("UnixSockets, on real processes", .enabled(if: Machine.hasPython, "needs python3"))
struct UnixSocketsTests {
    let proc = Proc()

    private func haveUnread(_ children: Child...) throws -> Bool {
        try UnixSockets.haveUnread(try children.map { try proc.identity(of: $0.pid) })
    }

    @Test("two threads that use copies of one socket get their own answers")
    func shared() throws {
        var ends: [Int32] = [0, 0]
        try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        defer { for end in ends { close(end) } }
        var information = stat()
        try #require(fstat(ends[0], &information) == 0)
        let inode = UInt32(information.st_ino)
        var given = [(name: HandedOver.sockets, descriptor: try SocketDiagnosis.openSocket().release())]
        let handed = HandedOver(from: &given)
        DispatchQueue.concurrentPerform(iterations: 2) { _ in
            var failures: Set<String> = []
            for _ in 0..<300 {
                var isThere = false
                do {
                    try SocketDiagnosis(handed).ask(.names) {
                        if $0.inode == inode { isThere = true }
                        return true
                    }
                    if !isThere { failures.insert("it is missing") }
                } catch {
                    failures.insert("\(error)")
                }
            }
            #expect(failures == [])
        }
    }

    @Test("data sent to a stopped process waits, and is gone once it is read")
    func stopped() throws {
        let child = try Child(python: "for line in sys.stdin: say(line.strip())")
        child.tell("first")
        #expect(try child.line() == "first")
        #expect(try !haveUnread(child))
        kill(child.pid, SIGSTOP)
        try child.waitUntilStopped()
        child.tell("second")
        child.tell("third")
        #expect(try haveUnread(child))
        kill(child.pid, SIGCONT)
        #expect(try child.line() == "second")
        #expect(try child.line() == "third")
        #expect(try !haveUnread(child))
    }

    @Test(
        "packet and stream sockets count; datagram sockets, TCP and pipes do not",
        arguments: ["DGRAM", "SEQPACKET", "STREAM"])
    func kinds(kind: String) throws {
        let child = try Child(
            python: """
                import socket
                a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_\(kind))
                a.send(b'12345')
                server = socket.create_server(('127.0.0.1', 0))
                c = socket.create_connection(server.getsockname())
                s = server.accept()[0]
                c.send(b'tcp')
                r, w = os.pipe()
                os.write(w, b'pipe')
                say('on')
                hold()
                """)
        _ = try child.line()
        let idle = try Child.idle()
        #expect(try haveUnread(idle, child) == (kind != "DGRAM"))
        #expect(try !haveUnread(idle))
    }

    @Test(
        "a connection waits to be accepted, and data outlives the end of its sender",
        arguments: ["path", "abstract"])
    func connections(kind: String) throws {
        let path = FileManager.default.temporaryDirectory
            .appendingPathComponent("linux-tests-\(UUID().uuidString)").path
        defer { unlink(path) }
        let name = kind == "path" ? "'\(path)'" : "'\\0' + '\(path)'"
        let server = try Child(
            python: """
                import socket
                s = socket.socket(socket.AF_UNIX)
                s.bind(\(name))
                s.listen()
                say('on')
                sys.stdin.readline()
                c = s.accept()[0]
                c.send(b'welcome')
                say('done')
                sys.stdin.readline()
                c.close()
                say('closed')
                hold()
                """)
        _ = try server.line()
        let client = try Child(
            python: """
                import socket
                c = socket.socket(socket.AF_UNIX)
                c.connect(\(name))
                say('on')
                signal.pause()
                """)
        _ = try client.line()
        #expect(try !haveUnread(client))
        #expect(try haveUnread(server))
        server.tell("")
        _ = try server.line()
        #expect(try !haveUnread(server))
        #expect(try haveUnread(client))
        server.tell("")
        _ = try server.line()
        #expect(try haveUnread(client))
    }

    @Test(
        "a message of a bus is seen, with the bus's socket",
        .enabled(if: Machine.hasBus, "needs dbus-daemon"))
    func bus() throws {
        let path = FileManager.default.temporaryDirectory
            .appendingPathComponent("linux-tests-\(UUID().uuidString)").path
        defer { unlink(path) }
        let bus = try Child([
            "dbus-daemon", "--session", "--nofork", "--nosyslog", "--print-address",
            "--address=unix:path=\(path)",
        ])
        _ = try bus.line()
        let client = try Child(
            python: """
                import socket, struct
                c = socket.socket(socket.AF_UNIX)
                c.connect('\(path)')
                c.send(b'\\0AUTH EXTERNAL ' + str(os.getuid()).encode().hex().encode() + b'\\r\\n')
                assert c.recv(100).startswith(b'OK ')
                def field(code, kind, text):
                    text = text.encode()
                    raw = struct.pack('<BB', code, 1) + kind + b'\\0' + struct.pack('<I', len(text)) + text + b'\\0'
                    return raw + b'\\0' * (-len(raw) % 8)
                fields = (field(1, b'o', '/org/freedesktop/DBus') + field(6, b's', 'org.freedesktop.DBus')
                    + field(2, b's', 'org.freedesktop.DBus') + field(3, b's', 'Hello'))
                # The last one's padding does not count.
                length = len(fields) - 2
                c.send(b'BEGIN\\r\\nl\\1\\0\\1' + struct.pack('<III', 0, 1, length) + fields)
                # Looks, and leaves it there.
                say(len(c.recv(16, socket.MSG_PEEK | socket.MSG_WAITALL)))
                signal.pause()
                """)
        try #require(try client.line() == "16")
        #expect(try haveUnread(client))
    }

    @Test("an ended process, or a reused id, makes the answer unknown")
    func gone() throws {
        let child = try Child.idle()
        let identity = try proc.identity(of: child.pid)
        let other = ProcessIdentity(pid: child.pid, startTime: identity.startTime + 1)
        #expect(failure { _ = try UnixSockets.haveUnread([other]) }?.errno == ESRCH)
        kill(child.pid, SIGKILL)
        try child.reap()
        #expect(failure { _ = try UnixSockets.haveUnread([identity]) }?.errno == ESRCH)
    }

    @Test(
        "a process that may not be examined makes the answer unknown",
        .enabled(if: !Machine.isRoot, "needs not to be root"))
    func denied() throws {
        let first = try proc.identity(of: 1)
        #expect(failure { _ = try UnixSockets.haveUnread([first]) }?.isPermissionDenied == true)
    }

    @Test(
        "sockets in another network namespace make the answer unknown",
        .enabled(if: Machine.canUnshareNetwork, "needs root and unshare"))
    func otherNetwork() throws {
        let child = try Child([
            "unshare", "-n", "/usr/bin/python3", "-c",
            """
            import socket, sys
            a, b = socket.socketpair()
            print('on', flush=True)
            sys.stdin.read()
            """,
        ])
        _ = try child.line()
        #expect(failure { _ = try haveUnread(child) }?.errno == EXDEV)
    }
}

extension Machine {
    static let hasBus = access("/usr/bin/dbus-daemon", X_OK) == 0
    static let canUnshareNetwork: Bool =
        isRoot && access("/usr/bin/unshare", X_OK) == 0
        && (try? Child(["unshare", "-n", "true"]).reap()) == 0
}
