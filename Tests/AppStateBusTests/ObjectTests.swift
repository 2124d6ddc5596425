import AppStateBus
import TestSupport
import Testing

@Suite(.enabled(if: hasBus, noBus)) struct ObjectTests {
    private static let properties = "org.freedesktop.DBus.Properties"
    private static let objects = "org.appstate1.Test.Object"
    private static let prefix = "/org/appstate1/test/object"

    /// A service with an object manager and the objects 1 and 2; the second is hidden from every client.
    private static func peersWithObjects() throws -> Peers {
        let peers = try Peers()
        try peers.serve(properties: [
            Property("Version", "s", emits: .const) { message, _ in try message.append("0.1") },
            Property("Level", "u", emits: .change) { message, _ in try message.append(UInt32(3)) },
            Property("Usage", "t") { message, _ in try message.append(UInt64(4)) },
            Property("List", "as", emits: .invalidation) { message, _ in try message.append(strings: ["a"]) },
        ])
        let interface = Interface(
            objects,
            methods: [
                Method("Path", out: [("path", "o"), ("sender", "s")]) { call in
                    let (path, sender) = (call.path, call.sender)
                    try call.reply { reply in
                        try reply.append(objectPath: path)
                        try reply.append(sender)
                    }
                }
            ],
            properties: [
                Property("Number", "s", emits: .change) { message, path in
                    try message.append(String(path.split(separator: "/").last ?? ""))
                }
            ],
            signals: [Signal("Changed", [("from", "s"), ("to", "s")])])
        // Not the peers themselves, since they own the slots.
        let (client, service) = (peers.client.uniqueName, peers.service)
        peers.slots.append(
            try peers.service.addFallback(interface, under: prefix) { path throws(MethodError) in
                if path.hasSuffix("/denied") {
                    throw MethodError("org.freedesktop.DBus.Error.AccessDenied", path)
                }
                return path == "\(prefix)/1" && service.currentSender != nil
            })
        peers.slots.append(
            try peers.service.addNodes(under: prefix) { _ in
                #expect(service.currentSender == client)
                return ["\(prefix)/1", "\(prefix)/2"]
            })
        peers.slots.append(try peers.service.addObjectManager(at: Peers.path))
        return peers
    }

    @Test func aFallbackObjectIsWhatFindSays() throws {
        let peers = try Self.peersWithObjects()
        let reply = try peers.call("Path", interface: Self.objects, path: "\(Self.prefix)/1")
        #expect(try reply.readObjectPath() == "\(Self.prefix)/1")
        #expect(try reply.readString() == peers.client.uniqueName)
        let hidden = try peers.refusal("Path", interface: Self.objects, path: "\(Self.prefix)/2")
        #expect(hidden?.name == "org.freedesktop.DBus.Error.UnknownObject")
        let denied = try peers.refusal("Path", interface: Self.objects, path: "\(Self.prefix)/denied")
        #expect(denied == MethodError("org.freedesktop.DBus.Error.AccessDenied", "\(Self.prefix)/denied"))
        let property = try peers.refusal("Get", interface: Self.properties, path: "\(Self.prefix)/denied") {
            try $0.append(Self.objects)
            try $0.append("Number")
        }
        #expect(property?.name == "org.freedesktop.DBus.Error.AccessDenied")
    }

    @Test func introspectionShowsMembersArgumentsAndNodes() throws {
        let peers = try Self.peersWithObjects()
        let introspectable = "org.freedesktop.DBus.Introspectable"
        let object = try peers.call("Introspect", interface: introspectable, path: "\(Self.prefix)/1")
        let xml = try object.readString()
        for expected in [
            "<interface name=\"\(Self.objects)\">", "<method name=\"Path\">",
            "<arg type=\"o\" name=\"path\" direction=\"out\"/>",
            "<arg type=\"s\" name=\"sender\" direction=\"out\"/>",
            "<property name=\"Number\" type=\"s\" access=\"read\">", "<signal name=\"Changed\">",
            "<arg type=\"s\" name=\"from\"/>", "<arg type=\"s\" name=\"to\"/>",
        ] {
            #expect(xml.contains(expected), "\(expected) is missing in \(xml)")
        }
        let root = try peers.call("Introspect", interface: introspectable, path: Self.prefix)
        let nodes = try root.readString()
        #expect(nodes.contains("<node name=\"1\"/>") && nodes.contains("<node name=\"2\"/>"))
        let manager = try peers.call("Introspect", interface: introspectable)
        let annotations = try manager.readString().split(separator: "\n").filter {
            $0.contains("EmitsChanged")
        }
        #expect(annotations.count == 3)
        #expect(annotations.contains { $0.contains("\"const\"") })
        #expect(annotations.contains { $0.contains("\"false\"") })
        #expect(annotations.contains { $0.contains("\"invalidates\"") })
    }

    @Test func propertiesAreReadOneByOneAndTogether() throws {
        let peers = try Self.peersWithObjects()
        let get = try peers.call("Get", interface: Self.properties) {
            try $0.append(Peers.interface)
            try $0.append("Level")
        }
        #expect(try get.readVariant() == .uint32(3))
        let all = try peers.call("GetAll", interface: Self.properties) { try $0.append(Peers.interface) }
        let values = try all.readDictionary()
        #expect(values.map(\.key) == ["Version", "Level", "Usage", "List"])
        #expect(values.map(\.value) == [.string("0.1"), .uint32(3), .uint64(4), .strings(["a"])])
        let set = try peers.refusal("Set", interface: Self.properties) {
            try $0.append(Peers.interface)
            try $0.append("Level")
            try $0.append(Variant.uint32(1))
        }
        #expect(set?.name == "org.freedesktop.DBus.Error.PropertyReadOnly")
    }

    @Test func managedObjectsAreThoseThatFindKnows() throws {
        let peers = try Self.peersWithObjects()
        let reply = try peers.call("GetManagedObjects", interface: "org.freedesktop.DBus.ObjectManager")
        #expect(reply.error == nil)
        var numbers: [String: Variant] = [:]
        try reply.withEntered(.array, "{oa{sa{sv}}}") {
            while try reply.enter(.dictEntry, "oa{sa{sv}}") {
                let path = try reply.readObjectPath()
                try reply.withEntered(.array, "{sa{sv}}") {
                    while try reply.enter(.dictEntry, "sa{sv}") {
                        let interface = try reply.readString()
                        let properties = try reply.readDictionary()
                        if interface == Self.objects {
                            numbers[path] = properties.first { $0.key == "Number" }?.value
                        }
                        try reply.exit()
                    }
                }
                try reply.exit()
            }
        }
        #expect(numbers == ["\(Self.prefix)/1": .string("1")])
    }

    @Test func anErrorOfAPropertyBecomesTheAnswer() throws {
        let peers = try Peers()
        try peers.serve(properties: [
            Property("Refused", "s") { _, path in throw MethodError("org.appstate1.Error.NoSuchTask", path) }
        ])
        let refusal = try peers.refusal("Get", interface: Self.properties) {
            try $0.append(Peers.interface)
            try $0.append("Refused")
        }
        #expect(refusal == MethodError("org.appstate1.Error.NoSuchTask", Peers.path))
        let all = try peers.refusal("GetAll", interface: Self.properties) { try $0.append(Peers.interface) }
        #expect(all == MethodError("org.appstate1.Error.NoSuchTask", Peers.path))
    }
}
