import AppStateBus
import TestSupport
import Testing

@Suite(.enabled(if: hasBus, noBus)) struct MethodTests {
    private static let invalidArgs = "org.freedesktop.DBus.Error.InvalidArgs"
    private static let failed = "org.freedesktop.DBus.Error.Failed"

    @Test func wrongArgumentsAreInvalidArgs() throws {
        let peers = try Peers()
        try peers.serve(
            Method("Take", in: [("a", "s"), ("b", "u")]) { call in try call.reply() },
            Method("Read", in: [("a", "s")]) { call in
                _ = try call.message.readUInt32()
                try call.reply()
            },
            Method("TooFar", in: [("a", "s")]) { call throws(MethodError) in
                _ = try call.read { (try $0.readString(), try $0.readString()) }
                try call.reply()
            })
        #expect(try peers.refusal("Take") { try $0.append("one") }?.name == Self.invalidArgs)
        #expect(try peers.refusal("Take")?.name == Self.invalidArgs)
        let read = try peers.refusal("Read") { try $0.append("text") }
        #expect(read == .invalidArgs("Read: expected u, found s"))
        let far = try peers.refusal("TooFar") { try $0.append("text") }
        #expect(far == .invalidArgs("TooFar: expected s, found nothing more"))
    }

    @Test func whatIsNotThereIsUnknown() throws {
        let peers = try Peers()
        try peers.serve(Method("Known") { call in try call.reply() })
        #expect(try peers.refusal("Unknown")?.name == "org.freedesktop.DBus.Error.UnknownMethod")
        #expect(
            try peers.refusal("Known", path: "/elsewhere")?.name == "org.freedesktop.DBus.Error.UnknownObject"
        )
        let get = try peers.refusal("Get", interface: "org.freedesktop.DBus.Properties") {
            try $0.append(Peers.interface)
            try $0.append("Unknown")
        }
        #expect(get?.name == "org.freedesktop.DBus.Error.UnknownProperty")
    }

    @Test func anAnswerCanWait() throws {
        let peers = try Peers()
        var kept: [PendingCall] = []
        try peers.serve(
            Method("Later", in: [("s", "s")], out: [("s", "s")]) { call in kept.append(call.deferred()) },
            Method("Now") { call in try call.reply() })
        let answers = [Answer(), Answer(), Answer(), Answer()]
        let slots = try answers.map { answer in
            let call = try peers.newCall("Later")
            try call.append("x")
            return try peers.client.callAsync(call) { answer.message = $0.retained() }
        }
        #expect(slots.count == 4)
        #expect(try peers.refusal("Now") == nil)
        try peers.run { kept.count == 4 }
        #expect(answers.allSatisfy { $0.message == nil })
        #expect(kept.allSatisfy { !$0.isAnswered && $0.member == "Later" && $0.path == Peers.path })
        kept[0].reply { try $0.append("late") }
        kept[0].fail(.failed("too late"))
        kept[1].fail(MethodError("org.appstate1.Error.NotSuspendable", "no"))
        kept[2].reply { try $0.append("nul \0") }
        kept = []
        try peers.run { answers.allSatisfy { $0.message != nil } }
        let texts = answers.map { answer -> String in
            let message = answer.taken()
            switch consume message {
            case .some(let message): return message.error?.name ?? (try? message.readString()) ?? "none"
            case .none: return "none"
            }
        }
        #expect(texts == ["late", "org.appstate1.Error.NotSuspendable", Self.failed, Self.failed])
    }
}
