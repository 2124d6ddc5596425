import AppStateBus
import AppStateContract
import Foundation
import TestSupport
import Testing

/// The files in dbus/ are the contract. They are compared with the introspection data of the live objects.
@Suite("Introspection", .enabled(if: TestDaemon.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct IntrospectionTests {
    private static let all = [
        BusNames.application, BusNames.manager, BusNames.reporter, BusNames.launcher, BusNames.presenter,
        BusNames.shell,
        BusNames.windows,
    ]

    private func live(_ client: Client, _ path: String) throws -> [String: [String]] {
        let reply = try client.call(path, "org.freedesktop.DBus.Introspectable", "Introspect")
        return try Description.interfaces(in: try reply.readString())
    }

    @Test("Manager and Reporter match their files, including argument names and annotations")
    func root() throws {
        let daemon = try TestDaemon()
        let interfaces = try live(try daemon.client(), BusNames.root)
        for name in [BusNames.manager, BusNames.reporter] {
            let description = try Description.documented(name)
            #expect(description.count > 5)
            #expect(interfaces[name] == description, "\(name)")
        }
    }

    @Test("Application matches its file")
    func application() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let child = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Editor", child.pid)
        let description = try Description.documented(BusNames.application)
        #expect(description.count > 50)
        #expect(try live(client, path)[BusNames.application] == description)
    }

    @Test("the objects have our interfaces and the standard ones, and no others")
    func standard() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let child = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Editor", child.pid)
        let standard: Set<String> = [
            "org.freedesktop.DBus.Peer", "org.freedesktop.DBus.Introspectable", BusNames.properties,
        ]
        #expect(
            Set(try live(client, BusNames.root).keys)
                == standard.union([BusNames.manager, BusNames.reporter, BusNames.objectManager]))
        #expect(Set(try live(client, path).keys) == standard.union([BusNames.application]))
    }

    @Test("the signals and errors in the code are those in the files")
    func names() throws {
        func signals(_ interface: String) throws -> Set<String> {
            Set(
                try Description.documented(interface).compactMap { line in
                    let words = line.split(whereSeparator: { " (".contains($0) }).map(String.init)
                    return words.first == "signal" ? words[1] : nil
                })
        }
        #expect(try signals(BusNames.application) == Set(ApplicationSignal.allCases.map(\.rawValue)))
        #expect(try signals(BusNames.manager) == Set(ManagerSignal.allCases.map(\.rawValue)))
        let files = try Self.all.map {
            try String(contentsOfFile: "\(Programs.root)/dbus/\($0).xml", encoding: .utf8)
        }
        for name in ErrorName.allCases {
            #expect(files.contains { $0.contains(name.rawValue) }, "\(name.rawValue)")
        }
        let prefix = "\(BusNames.service).Error."
        let named = files.flatMap { $0.components(separatedBy: prefix).dropFirst() }
            .map { "\(prefix)\($0.prefix(while: \.isLetter))" }
        #expect(Set(named).subtracting(ErrorName.allCases.map(\.rawValue)) == [])
    }

    @Test("GNOME Shell's extension exports what its file describes")
    func shell() throws {
        let script = try String(contentsOfFile: "\(Programs.root)/gnome/windows.js", encoding: .utf8)
        let begin = try #require(script.range(of: "<node>"))
        let end = try #require(script.range(of: "</node>"))
        let text = script[begin.lowerBound..<end.upperBound]
            .replacingOccurrences(of: "${NAME}", with: BusNames.shell)
        let described = try Description.documented(BusNames.shell)
        #expect(described.count == 4)
        #expect(try Description.interfaces(in: text) == [BusNames.shell: described])
    }

    @Test("every method's documentation has its callers and its errors, and explains every argument")
    func documentation() throws {
        for name in Self.all {
            let text = try String(contentsOfFile: "\(Programs.root)/dbus/\(name).xml", encoding: .utf8)
            for line in try Description.documented(name) {
                let words = line.split(whereSeparator: { " (,)".contains($0) }).map(String.init)
                guard ["method", "signal", "property"].contains(words.first), words.count > 1 else {
                    continue
                }
                let comment = try #require(Description.comment(on: words[1], words[0], in: text), "\(line)")
                if words[0] == "method" {
                    #expect(comment.contains("Errors:"), "\(line)")
                    // These say it once for all their methods.
                    if ![BusNames.reporter, BusNames.launcher, BusNames.presenter].contains(name) {
                        #expect(comment.contains("Who:"), "\(line)")
                    }
                }
                for argument in words where argument.hasPrefix("@") {
                    #expect(comment.contains("\(argument):"), "\(line)")
                }
            }
        }
    }
}
