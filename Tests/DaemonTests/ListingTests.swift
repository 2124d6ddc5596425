import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// Answers that name every application.
@Suite("Long lists", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct ListingTests {
    private typealias Objects = [String: [String: Variant]]

    /// Many applications, whose processes are children of a single one.
    private struct Crowd {
        let daemon: TestDaemon
        let client: Client
        let app: App
        let paths: [String]
        let pids: [Int32]

        init(_ count: Int) throws {
            daemon = try TestDaemon()
            client = try daemon.client()
            app = try App(daemon.bus)
            let app = app
            pids = try (0..<count).map { _ in try app.make("fork") }
            let client = client
            paths = try pids.map {
                try client.register("org.example.App", $0, [("launch-mode", .string("foreground"))])
            }
        }
    }

    private func objects(in reply: borrowing Message) throws -> Objects {
        var objects: Objects = [:]
        try reply.withEntered(.array, "{oa{sa{sv}}}") {
            while !reply.atEnd {
                try reply.withEntered(.dictEntry, "oa{sa{sv}}") {
                    let path = try reply.readObjectPath()
                    try reply.withEntered(.array, "{sa{sv}}") {
                        while !reply.atEnd {
                            try reply.withEntered(.dictEntry, "sa{sv}") {
                                let interface = try reply.readString()
                                let values = try reply.readDictionary()
                                guard interface == BusNames.application else { return }
                                objects[path] = Dictionary(values.map { ($0.key, $0.value) }) { $1 }
                            }
                        }
                    }
                }
            }
        }
        return objects
    }

    @Test("all applications are listed once, in order, with every property")
    func whole() throws {
        let crowd = try Crowd(150)
        let reply = try crowd.client.call(BusNames.root, BusNames.objectManager, "GetManagedObjects")
        let objects = try objects(in: reply)
        #expect(Set(objects.keys) == Set(crowd.paths))
        for path in [crowd.paths[0], crowd.paths[149]] {
            let all = try crowd.client.call(path, BusNames.properties, "GetAll") {
                try $0.append(BusNames.application)
            }.readDictionary()
            var expected = Dictionary(all.map { ($0.key, $0.value) }) { $1 }
            var found = objects[path] ?? [:]
            expected["MemoryUsage"] = nil
            found["MemoryUsage"] = nil
            #expect(found == expected)
        }
        #expect(
            try crowd.client.list().map { $0.split(separator: " ").first.map(String.init) } == crowd.paths)
    }

    @Test("a client that follows the signals has a correct picture of changes around a list")
    func picture() throws {
        let crowd = try Crowd(200)
        let follower = try crowd.daemon.client()
        var picture: Objects = [:]
        var hasAnswer = false
        let filter = try follower.bus.addFilter { message in
            guard message.isSignal else { return false }
            do {
                switch message.member {
                case "PropertiesChanged":
                    let path = message.path ?? ""
                    _ = try message.readString()
                    for (key, value) in try message.readDictionary() where picture[path] != nil {
                        picture[path]?[key] = value
                    }
                case "InterfacesRemoved":
                    picture[try message.readObjectPath()] = nil
                case "InterfacesAdded":
                    picture[try message.readObjectPath()] = [:]
                default: break
                }
                try message.rewind()
            } catch {
                Issue.record("\(error)")
            }
            return false
        }
        // The calls arrive together with the question for a list.
        for round in 0..<4 {
            hasAnswer = false
            let call = try follower.bus.newCall(
                destination: BusNames.service, path: BusNames.root, interface: BusNames.objectManager,
                member: "GetManagedObjects")
            let slot = try follower.bus.callAsync(call, timeout: .max) { reply in
                hasAnswer = true
                do {
                    for (path, values) in try objects(in: reply) { picture[path] = values }
                } catch {
                    Issue.record("\(error)")
                }
            }
            // These are sent before the test waits for the answer.
            for index in [0, 60, 120, 180] {
                try crowd.client.setMinimized(crowd.pids[index], round % 2 == 0)
            }
            try crowd.client.application(crowd.paths[10 + round], "Unregister")
            try crowd.client.application(crowd.paths[190 + round], "Unregister")
            try crowd.client.register("org.example.New", crowd.pids[10 + round])
            try follower.wait("the answer") { hasAnswer }
            slot.cancel()
        }
        try follower.settle()
        filter.cancel()
        let rows = try crowd.client.list().map { $0.split(separator: " ").map(String.init) }
        #expect(Set(picture.keys) == Set(rows.map { $0[0] }))
        for row in rows {
            guard let known = picture[row[0]], !known.isEmpty else { continue }
            #expect(known["State"] == .string(row[4]), "\(row[0])")
        }
    }

    @Test(
        "a client that reads everything counts as a subscriber; an application that reads its own does not")
    func subscribers() throws {
        let daemon = try TestDaemon(configuration: "[Limits]\nSubscribersPerUser=3\n")
        let app = try App(daemon.bus)
        let path = try app.register()
        let clients = try (0..<4).map { _ in try daemon.client() }
        try clients[0].manager("Subscribe")
        try clients[1].call(BusNames.root, BusNames.objectManager, "GetManagedObjects")
        try clients[2].call(path, BusNames.properties, "GetAll") { try $0.append("") }
        let limitsExceeded = ErrorName.limitsExceeded.rawValue
        func error(_ call: () throws -> Void) -> String? { clients[3].error(of: call) }
        #expect(error { try clients[3].manager("Subscribe") } == limitsExceeded)
        #expect(
            error { try clients[3].call(BusNames.root, BusNames.objectManager, "GetManagedObjects") }
                == limitsExceeded)
        #expect(
            error { try clients[3].call(path, BusNames.properties, "GetAll") { try $0.append("") } }
                == limitsExceeded)
        #expect(
            error { try clients[3].call(BusNames.root, BusNames.properties, "GetAll") { try $0.append("") } }
                == limitsExceeded)
        // Nothing has changed for it, and it may still read single values.
        #expect(try clients[3].state(path) == "not-running")
        #expect(try clients[3].list().count == 1)
        // A client that already is a subscriber may follow more.
        for client in clients.prefix(3) {
            try client.call(BusNames.root, BusNames.properties, "GetAll") { try $0.append("") }
        }
        try app.ask("call \(path) \(BusNames.properties) GetAll s:")
        // A subscriber that leaves makes room.
        let name = clients[1].bus.uniqueName
        try clients[0].waitForDeparture(of: name) { clients[1].bus.close() }
        try clients[3].manager("Subscribe")
    }
}
