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

    @Test(.enabled(if: Programs.inPath("gdbus") != nil, "gdbus is not installed"))
    func gdbusCallsAndIntrospects() throws {
        let peers = try Self.peers()
        let target = ["--address", peers.daemon.address, "--dest", Peers.name, "--object-path", Peers.path]
        let call = ["call"] + target + ["--method", "\(Peers.interface).Join", "one"]
        let child = try peers.run("gdbus", call + ["{'a': <uint32 7>, 'b': <['x']>}"])
        #expect(child.output == "('one uint32(7) strings([\"x\"])', ['a', 'b'])\n", "\(child.errors)")
        let refused = try peers.run("gdbus", call + ["@a{sv} {}"])
        #expect(refused.errors.contains("org.appstate1.Error.NoSuchTask: no options"))
        let introspection = try peers.run("gdbus", ["introspect"] + target)
        #expect(introspection.output.contains("Join(in  s first,"))
        #expect(introspection.output.contains("readonly s Version = '0.1'"))
    }

    @Test(.enabled(if: Programs.inPath("busctl") != nil, "busctl is not installed"))
    func busctlCallsAndReadsProperties() throws {
        let peers = try Self.peers()
        let bus = "--address=\(peers.daemon.address)"
        let target = [Peers.name, Peers.path, Peers.interface]
        let call = try peers.run(
            "busctl", [bus, "call"] + target + ["Join", "sa{sv}", "one", "1", "a", "t", "9"])
        #expect(call.output == "sas \"one uint64(9)\" 1 \"a\"\n", "\(call.errors)")
        let property = try peers.run("busctl", [bus, "get-property"] + target + ["Version"])
        #expect(property.output == "s \"0.1\"\n", "\(property.errors)")
        let wrong = try peers.run("busctl", [bus, "call"] + target + ["Join", "s", "one"])
        #expect(wrong.errors.contains("Invalid arguments"), "\(wrong.errors)")
    }

    @Test(
        .enabled(if: isRoot, "only root can be another user"),
        .enabled(if: Programs.inPath("busctl") != nil, "busctl is not installed"))
    func anotherUserMayCall() throws {
        let peers = try Self.peers()
        let arguments = [
            Peers.name, Peers.path, Peers.interface, "Join", "sa{sv}", "one", "1", "a", "b", "true",
        ]
        let call = try peers.run(
            "busctl", ["--address=\(peers.daemon.address)", "call"] + arguments, uid: 65_534)
        #expect(call.output == "sas \"one bool(true)\" 1 \"a\"\n", "\(call.errors)")
    }
}
