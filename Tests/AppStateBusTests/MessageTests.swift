import AppStateBus
import Glibc
import TestSupport
import Testing

@Suite(.enabled(if: hasBus, noBus)) struct MessageTests {
    private static let basicTypes = "sogbynqiuxtd".map { ("type_\($0)", String($0)) }
    private static let containers = [
        ("bytes", "ay"), ("strings", "as"), ("rows", "a(su)"), ("dictionary", "a{sv}"), ("variant", "v"),
    ]

    @Test func everyBasicTypeTravelsBothWays() throws {
        let peers = try Peers()
        try peers.serve(
            Method("Echo", in: Self.basicTypes, out: Self.basicTypes) { call in
                let texts = (
                    try call.message.readString(), try call.message.readObjectPath(),
                    try call.message.readSignature()
                )
                let small = (try call.message.readBool(), try call.message.readUInt8())
                let numbers = (
                    try call.message.readInt16(), try call.message.readUInt16(), try call.message.readInt32(),
                    try call.message.readUInt32(), try call.message.readInt64(),
                    try call.message.readUInt64(),
                    try call.message.readDouble()
                )
                #expect(call.message.atEnd == true)
                try call.reply { reply in
                    try reply.append(texts.0)
                    try reply.append(objectPath: texts.1)
                    try reply.append(signature: texts.2)
                    try reply.append(small.0)
                    try reply.append(small.1)
                    try reply.append(numbers.0)
                    try reply.append(numbers.1)
                    try reply.append(numbers.2)
                    try reply.append(numbers.3)
                    try reply.append(numbers.4)
                    try reply.append(numbers.5)
                    try reply.append(numbers.6)
                }
            })
        let reply = try peers.call("Echo") { call in
            try call.append("grüße 🌍")
            try call.append(objectPath: "/a/b")
            try call.append(signature: "a{sv}")
            try call.append(true)
            try call.append(UInt8.max)
            try call.append(Int16.min)
            try call.append(UInt16.max)
            try call.append(Int32.min)
            try call.append(UInt32.max)
            try call.append(Int64.min)
            try call.append(UInt64.max)
            try call.append(-0.5)
        }
        #expect(reply.error == nil)
        #expect(reply.signature == "sogbynqiuxtd")
        #expect(try reply.readString() == "grüße 🌍")
        #expect(try reply.readObjectPath() == "/a/b")
        #expect(try reply.readSignature() == "a{sv}")
        #expect(try reply.readBool())
        #expect(try reply.readUInt8() == .max)
        #expect(try reply.readInt16() == .min)
        #expect(try reply.readUInt16() == .max)
        #expect(try reply.readInt32() == .min)
        #expect(try reply.readUInt32() == .max)
        #expect(try reply.readInt64() == .min)
        #expect(try reply.readUInt64() == .max)
        #expect(try reply.readDouble() == -0.5)
        #expect(reply.atEnd == true)
    }

    @Test func containersTravelBothWays() throws {
        let peers = try Peers()
        try peers.serve(
            Method("Echo", in: Self.containers, out: Self.containers) { call in
                let bytes = try call.message.readBytes()
                let strings = try call.message.readStrings()
                var rows: [(String, UInt32)] = []
                try call.message.withEntered(.array, "(su)") {
                    while try call.message.enter(.struct, "su") {
                        rows.append((try call.message.readString(), try call.message.readUInt32()))
                        try call.message.exit()
                    }
                }
                let dictionary = try call.message.readDictionary()
                let variant = try call.message.readVariant()
                try call.reply { reply in
                    try reply.append(bytes: bytes)
                    try reply.append(strings: strings)
                    try reply.withContainer(.array, "(su)") {
                        for (name, number) in rows {
                            try reply.withContainer(.struct, "su") {
                                try reply.append(name)
                                try reply.append(number)
                            }
                        }
                    }
                    try reply.appendDictionary(dictionary.map { ($0.key, $0.value) })
                    try reply.append(variant)
                }
            })
        let nested = Variant.structure([
            .uint32(7), .array("(ob)", [.structure([.objectPath("/x"), .bool(true)])]),
            .array("{us}", [.entry(.uint32(1), .string("one"))]), .array("v", [.variant(.int16(-1))]),
            .dictionary(["b": .bytes([1, 2]), "a": .strings(["x", "y"])]), .array("t", []),
        ])
        let reply = try peers.call("Echo") { call in
            try call.append(bytes: [0, 1, 255])
            try call.append(strings: ["", "b"])
            try call.withContainer(.array, "(su)") {
                try call.withContainer(.struct, "su") {
                    try call.append("seven")
                    try call.append(UInt32(7))
                }
            }
            try call.appendDictionary([("z", .double(1.5)), ("a", .uint64(.max)), ("g", .signature("s"))])
            try call.append(nested)
        }
        #expect(reply.error == nil)
        #expect(try reply.peek()?.type == "a")
        #expect(try reply.peek()?.contents == "y")
        #expect(try reply.readBytes() == [0, 1, 255])
        #expect(try reply.readStrings() == ["", "b"])
        try reply.skip("a(su)")
        let dictionary = try reply.readDictionary()
        #expect(dictionary.map(\.key) == ["z", "a", "g"])
        #expect(dictionary.map(\.value) == [.double(1.5), .uint64(.max), .signature("s")])
        #expect(try reply.readVariant() == nested)
        #expect(try reply.peek() == nil)
        try reply.rewind()
        #expect(try reply.readBytes() == [0, 1, 255])
    }

    @Test func anEmptyMessageOfArraysReadsEmpty() throws {
        let peers = try Peers()
        try peers.serve(
            Method("Empty", out: [("a", "ay"), ("b", "as"), ("c", "a{sv}")]) { call in
                try call.reply { reply in
                    try reply.append(bytes: [])
                    try reply.append(strings: [])
                    try reply.appendDictionary([])
                }
            })
        let reply = try peers.call("Empty")
        #expect(try reply.readBytes() == [])
        #expect(try reply.readStrings() == [])
        #expect(try reply.readDictionary().isEmpty)
    }

    @Test func aMessageIsMeasured() throws {
        let peers = try Peers()
        try peers.serve(
            Method("Measure", in: [("arrays", "aas"), ("numbers", "at")], out: [("sizes", "at")]) { call in
                let sizes = try [call.message.size(atMost: 1_000), call.message.size(atMost: 800)]
                let numbers = sizes.map { UInt64($0 ?? 0) }
                try call.reply { reply in
                    try reply.withContainer(.array, "t") {
                        for number in numbers { try reply.append(number) }
                    }
                }
            })
        let reply = try peers.call("Measure") { call in
            try call.withContainer(.array, "as") { for _ in 0..<100 { try call.append(strings: []) } }
            try call.withContainer(.array, "t") { for number: UInt64 in 0..<3 { try call.append(number) } }
        }
        // One array around them, and one of three numbers.
        let isArray = try reply.enter(.array, "t")
        let numbers = try [reply.readUInt64(), reply.readUInt64()]
        #expect(isArray && numbers == [840, 0])
    }

    @Test func aCallWithMoreThanItsMethodTakesIsRefused() throws {
        let peers = try Peers()
        var calls = 0
        try peers.serve(
            Method("Short", in: [("text", "s")], limit: 100) { call in
                calls += 1
                try call.reply()
            })
        _ = try peers.call("Short") { try $0.append(String(repeating: "a", count: 92)) }
        let refusal = try peers.refusal("Short") { try $0.append(String(repeating: "a", count: 93)) }
        #expect(refusal?.name == "org.freedesktop.DBus.Error.LimitsExceeded")
        #expect(calls == 1)
    }

    @Test func descriptorsArriveAsDuplicates() throws {
        let peers = try Peers()
        let pipe = try PipeEnds()
        try peers.serve(
            Method("Write", in: [("descriptor", "h")]) { call in
                let descriptor = try call.read { try $0.readDescriptor() }
                #expect(fcntl(descriptor, F_GETFD) == FD_CLOEXEC)
                #expect(write(descriptor, "hello", 5) == 5)
                close(descriptor)
                try call.reply()
            })
        let reply = try peers.call("Write") { try $0.append(descriptor: pipe.write) }
        #expect(reply.error == nil)
        close(pipe.takeWrite())
        var bytes = [UInt8](repeating: 0, count: 16)
        #expect(read(pipe.read, &bytes, bytes.count) == 5)
    }

    @Test func aDescriptorInsideADictionaryIsReportedAndNotTaken() throws {
        let peers = try Peers()
        try peers.serve(
            Method("Options", in: [("options", "a{sv}")], out: [("keys", "as")]) { call in
                let options = try call.message.readDictionary()
                #expect(options.map(\.value) == [.string("x"), .descriptor, .structure([.descriptor])])
                try call.reply { try $0.append(strings: options.map(\.key)) }
            })
        let reply = try peers.call("Options") { call in
            try call.withContainer(.array, "{sv}") {
                try call.withContainer(.dictEntry, "sv") {
                    try call.append("a")
                    try call.append(Variant.string("x"))
                }
                for (key, contents) in [("b", "h"), ("c", "(h)")] {
                    try call.withContainer(.dictEntry, "sv") {
                        try call.append(key)
                        try call.withContainer(.variant, contents) {
                            if contents == "h" {
                                try call.append(descriptor: STDIN_FILENO)
                            } else {
                                try call.withContainer(.struct, "h") {
                                    try call.append(descriptor: STDIN_FILENO)
                                }
                            }
                        }
                    }
                }
            }
        }
        #expect(reply.error == nil)
        #expect(try reply.readStrings() == ["a", "b", "c"])
        let call = try peers.newCall("Options")
        #expect(throws: BusFailure.self) { try call.appendDictionary([("b", .descriptor)]) }
    }

    @Test func whatDBusDoesNotKnowIsRefused() throws {
        let peers = try Peers()
        let call = try peers.newCall("Any")
        #expect(throws: BusFailure.self) { try call.append("nul \0 inside") }
        let path = try peers.newCall("Any")
        #expect(throws: BusFailure.self) { try path.append(objectPath: "no path") }
        let signature = try peers.newCall("Any")
        #expect(throws: BusFailure.self) { try signature.append(signature: "(") }
    }

    @Test func headersAreReadable() throws {
        let peers = try Peers()
        let (service, client) = (peers.service.uniqueName, peers.client.uniqueName)
        // Not the peers themselves, since they own the slot.
        let bus = peers.service
        try peers.serve(
            Method("Who", out: [("sender", "s")]) { call in
                #expect(call.sender == client)
                #expect(bus.currentSender == client)
                #expect(call.path == Peers.path)
                #expect(call.message.interface == Peers.interface)
                #expect(call.message.destination == Peers.name)
                #expect(call.message.isMethodCall && !call.message.isSignal && !call.message.isError)
                #expect(call.message.expectsReply == true)
                let sender = call.sender
                try call.reply { try $0.append(sender) }
            })
        let call = try peers.newCall("Who")
        #expect(call.serial == nil)
        let reply = try peers.answer(to: call)
        #expect(reply.sender == service)
        #expect(reply.serial != nil)
        #expect(try reply.readString() == client)
        #expect(peers.service.currentSender == nil)
    }

    @Test("noncharacters, which libsystemd refuses, become U+FFFD, in arguments and in errors")
    func noncharacters() throws {
        let peers = try Peers()
        // A literal may not contain one.
        let noncharacters = [0xFFFE, 0xFDD0, 0x10FFFF].compactMap { Unicode.Scalar(UInt32($0)) }.map {
            String($0)
        }
        #expect(noncharacters.count == 3)
        try peers.serve(
            Method("Echo", in: [("text", "s")], out: [("text", "s")]) { call in
                let text = try call.message.readString()
                if text == "fail" { throw MethodError.failed("a\(noncharacters[1])b") }
                try call.reply { try $0.append(noncharacters[0] + text + noncharacters[2]) }
            })
        let text = try peers.call("Echo") { try $0.append("é") }.readString()
        #expect(text == "\u{FFFD}é\u{FFFD}")
        let error = try peers.refusal("Echo") { try $0.append("fail") }
        #expect(error?.message == "a\u{FFFD}b")
    }

}
