import AppStateBus
import TestSupport
import Testing

@Suite(.enabled(if: hasBus, noBus)) struct ForeignPeerTests {
    private static func peers() throws -> Peers {
        let peers = try Peers()
        try peers.serve(
            Method(
                "Join", in: [("first", "s"), ("options", "a{sv}")], out: [("joined", "s"), ("keys", "as")]
            ) { call in
                let first = try call.message.readString()
                let options = try call.message.readDictionary()
                if options.isEmpty {
                    throw MethodError("org.appstate1.Error.NoSuchTask", "no options")
                }
                try call.reply { reply in
                    try reply.append("\(first) \(options.map { "\($0.value)" }.joined(separator: " "))")
                    try reply.append(strings: options.map(\.key))
                }
            },
            properties: [Property("Version", "s", emits: .const) { message, _ in try message.append("0.1") }])
        return peers
    }

    @Test(
        "a message in the other byte order is measured and read, with its arrays of bytes and numbers",
        .enabled(if: Programs.inPath("python3") != nil, "needs python3"))
    func otherByteOrder() throws {
        let peers = try Peers()
        try peers.serve(
            Method("Keep", in: [("bytes", "ay"), ("numbers", "ai")], out: [("kept", "s")]) { call in
                let size = try call.message.size(atMost: 1_000)
                let bytes = try call.message.readBytes()
                var numbers: [Int32] = []
                _ = try call.message.enter(.array, "i")
                while !call.message.atEnd { numbers.append(try call.message.readInt32()) }
                try call.message.exit()
                try call.reply { try $0.append("\(size ?? 0) \(bytes) \(numbers)") }
            })
        let child = try peers.run(
            "python3", ["-c", Self.caller, peers.daemon.address, Peers.name, Peers.path, Peers.interface])
        #expect(child.output == "56 [1, 2, 3] [-1, 7]\n", "\(child.errors)")
    }

    /// Calls Keep in big-endian byte order, and prints the text of the answer or of the error.
    private static let caller = """
        import os, socket, struct, sys
        address, name, path, interface = sys.argv[1:]
        words = dict(word.split("=", 1) for word in address.split(":", 1)[1].split(","))
        end = socket.socket(socket.AF_UNIX)
        end.connect(words["path"] if "path" in words else "\\0" + words["abstract"])
        end.sendall(b"\\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\\r\\n")
        stream = end.makefile("rb")
        stream.readline()
        end.sendall(b"BEGIN\\r\\n")

        def aligned(data, size): return data + bytes(-len(data) % size)

        def text(value): return struct.pack(">I", len(value)) + value.encode() + b"\\0"

        def call(serial, destination, path, interface, member, signature="", body=b""):
            fields = b""
            for code, kind, value in [
                (1, b"o", path), (2, b"s", interface), (3, b"s", member), (6, b"s", destination)
            ]:
                fields = aligned(fields, 8) + bytes([code, 1]) + kind + b"\\0" + text(value)
            if signature:
                fields = aligned(fields, 8) + bytes([8, 1]) + b"g\\0"
                fields += bytes([len(signature)]) + signature.encode() + b"\\0"
            head = b"B" + bytes([1, 0, 1]) + struct.pack(">III", len(body), serial, len(fields))
            end.sendall(aligned(head + fields, 8) + body)

        def answer():
            while True:
                head = stream.read(16)
                order = "<" if head[:1] == b"l" else ">"
                size, _, fields = struct.unpack(order + "III", head[4:])
                stream.read(fields + -fields % 8)
                body = stream.read(size)
                if head[1] in (2, 3):
                    return body[4:4 + struct.unpack(order + "I", body[:4])[0]].decode()

        bus = "org.freedesktop.DBus"
        call(1, bus, "/org/freedesktop/DBus", bus, "Hello")
        answer()
        numbers = struct.pack(">Iii", 8, -1, 7)
        call(2, name, path, interface, "Keep", "ayai", aligned(struct.pack(">I3B", 3, 1, 2, 3), 4) + numbers)
        print(answer())
        """
}
