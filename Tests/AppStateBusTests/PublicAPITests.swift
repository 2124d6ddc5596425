import AppStateBus
import Foundation
import TestSupport
import Testing

private final class Keeper {
    var kept: [PendingCall] = []
}

/// Uses every public type with only AppStateBus imported: a C type among them would not compile here.
@Suite struct PublicAPITests {
    @Test func everyTypeIsUsableWithoutC() throws {
        let container: Container = .dictEntry
        let variant: Variant = .array("u", [.uint32(1)])
        let readiness: Readiness = [.readable, .priority, .writable, .error, .hangUp]
        let failure = BusFailure(operation: "try", subject: "it", errno: 1)
        let error = MethodError(
            BusFailure(operation: "call", subject: "it", errno: 5, name: "a.b", message: "c"))
        #expect(container.rawValue == UInt8(ascii: "e"))
        #expect(variant.signature == "au")
        #expect(readiness.rawValue == 0x1f)
        #expect(failure.description == "try it: Operation not permitted")
        #expect(error == MethodError("a.b", "c"))
    }

    @Test(.enabled(if: hasBus, noBus)) func everyHandleIsUsableWithoutC() throws {
        let daemon = try PrivateBus()
        let loop: EventLoop = try EventLoop()
        let bus: Bus = try Bus.open(address: daemon.address)
        try bus.attach(to: loop)
        let pipe = try PipeEnds()
        let source: Source = try loop.watch(pipe.read) { (_: Readiness) in }
        let timer: AppStateBus.Timer = try loop.timer {}
        let slot: Slot = try bus.addFilter { (_: borrowing Message) in false }
        let message: Message = try bus.newSignal(path: "/", interface: "a.b", member: "C")
        let credentials: Credentials = try bus.credentials(of: bus.uniqueName)
        let uid: UInt32 = credentials.uid
        #expect(uid == UInt32(getuid()))
        #expect(message.isSignal == true)
        source.cancel()
        timer.cancel()
        slot.cancel()
        try bus.flush()
        bus.close()
        #expect(!bus.isOpen)
    }

    @Test func systemdIsImportedInternallyOnly() throws {
        let sources = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .appendingPathComponent("../../Sources/AppStateBus")
        let files = try FileManager.default.contentsOfDirectory(at: sources, includingPropertiesForKeys: nil)
        try #require(!files.isEmpty)
        var imports: Set<String> = []
        for file in files {
            let lines = try String(contentsOf: file, encoding: .utf8).split(separator: "\n")
            imports.formUnion(lines.filter { $0.contains("import ") && !$0.contains("//") }.map(String.init))
        }
        #expect(imports == ["import CSystemd", "import Glibc"])
    }

    @Test func anInterfaceIsWrittenDown() throws {
        let keeper = Keeper()
        let interface = Interface(
            "org.example.Manager",
            methods: [
                Method("Register", in: [("app_id", "s"), ("options", "a{sv}")], out: [("application", "o")]) {
                    call throws(MethodError) in
                    let id = try call.read { try $0.readString() }
                    let options = try call.read { try $0.readDictionary() }
                    let sender = call.sender
                    if options.isEmpty {
                        throw MethodError("org.example.Error", id)
                    }
                    if options.count == 1 {
                        keeper.kept.append(call.deferred())
                    } else {
                        try call.reply { try $0.append(objectPath: "/" + sender) }
                    }
                },
                Method("List", out: [("list", "a(su)")]) { call throws(MethodError) in
                    try call.reply { reply in
                        try reply.withContainer(.array, "(su)") {
                            for number: UInt32 in 0..<3 {
                                try reply.withContainer(.struct, "su") {
                                    try reply.append(call.path)
                                    try reply.append(number)
                                }
                            }
                        }
                    }
                },
                Method("Mixed", in: [("x", "s")]) { call in
                    let x = try call.message.readString()
                    if x.isEmpty { throw MethodError.invalidArgs("empty") }
                    try call.reply()
                },
            ],
            properties: [
                Property("Version", "s", emits: .const) { message, path in
                    if path == "/" { throw MethodError.failed("root") }
                    try message.append("0.1")
                },
                Property("Other", "s") { message, _ throws(BusFailure) in try message.append("x") },
            ],
            signals: [Signal("StateChanged", [("application", "o"), ("app_id", "s")])])
        #expect(interface.methods.count == 3)
    }
}
