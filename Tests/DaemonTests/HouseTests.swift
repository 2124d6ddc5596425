import Foundation
import Testing

/// Who may import whom (docs/architecture). The compiler's own check passes over C targets and over what
/// comes with the toolchain.
@Suite("The house")
struct HouseTests {
    private static let source = #filePath

    private static var root: URL {
        URL(fileURLWithPath: source).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
    }

    /// Each room and what its sources may import. A row names only rooms above it.
    private static let rooms: [(name: String, imports: Set<String>)] = [
        ("AppStateContract", []),
        ("LifeCycle", ["AppStateContract"]),
        ("CSystemd", []),
        ("AppStateBus", ["AppStateContract", "CSystemd", "Glibc"]),
        ("CLinux", []),
        ("Linux", ["CLinux", "Glibc"]),
        ("CXCB", []),
        ("CWayland", []),
        ("Windows", ["CXCB", "CWayland", "Linux", "Glibc"]),
        ("Daemon", ["AppStateContract", "LifeCycle", "AppStateBus", "Linux", "Glibc"]),
        ("appstated", ["AppStateContract", "AppStateBus", "Linux", "Daemon", "Glibc"]),
        ("appstate-session", ["AppStateContract", "AppStateBus", "Linux", "Windows", "Glibc"]),
        ("appstatectl", ["AppStateContract", "AppStateBus", "ArgumentParser", "Glibc"]),
    ]

    /// What comes with the toolchain or the system, and is no dependency in the package.
    private static let given: Set<String> = ["Glibc"]

    @Test("every directory of Sources is a room")
    func directories() throws {
        let names = try FileManager.default.contentsOfDirectory(atPath: Self.root.path + "/Sources")
        #expect(Set(names) == Set(Self.rooms.map(\.name)))
    }

    @Test("a row imports only rows above it")
    func order() {
        var above: Set<String> = Self.given.union(["ArgumentParser"])
        for room in Self.rooms {
            #expect(room.imports.isSubset(of: above), "\(room.name)")
            above.insert(room.name)
        }
    }

    @Test("every import line is one that its room may have")
    func imports() throws {
        for room in Self.rooms {
            for (file, modules) in try Self.imports(of: room.name) {
                #expect(modules.isSubset(of: room.imports), "\(file): \(modules.subtracting(room.imports))")
            }
        }
    }

    @Test("what would make the daemon heavy is nowhere in its rooms")
    func heavy() throws {
        let heavy: Set<String> = [
            "Foundation", "FoundationEssentials", "Dispatch", "ArgumentParser", "Synchronization",
            "_Concurrency",
        ]
        for room in Self.rooms where room.name != "appstatectl" {
            for (file, modules) in try Self.imports(of: room.name) {
                #expect(modules.isDisjoint(with: heavy), "\(file)")
            }
        }
    }

    @Test("only one room includes systemd's headers, one the kernel's, and one the displays'")
    func headers() throws {
        for room in Self.rooms {
            let modules = try Self.imports(of: room.name).values.reduce(into: Set<String>()) {
                $0.formUnion($1)
            }
            #expect(modules.contains("CSystemd") == (room.name == "AppStateBus"), "\(room.name)")
            #expect(modules.contains("CLinux") == (room.name == "Linux"), "\(room.name)")
            #expect(modules.contains("CXCB") == (room.name == "Windows"), "\(room.name)")
            #expect(modules.contains("CWayland") == (room.name == "Windows"), "\(room.name)")
        }
    }

    @Test("the package declares what is imported, and nothing that may not be")
    func package() throws {
        let declared = try Self.declared()
        for room in Self.rooms where !room.name.hasPrefix("C") {
            let dependencies = try #require(declared[room.name], "\(room.name) is no target")
            #expect(dependencies.isSubset(of: room.imports), "\(room.name)")
            let used = try Self.imports(of: room.name).values.reduce(into: Set<String>()) { $0.formUnion($1) }
            #expect(used.subtracting(Self.given).isSubset(of: dependencies), "\(room.name)")
        }
    }

    /// The modules that each source file of a room imports.
    private static func imports(of room: String) throws -> [String: Set<String>] {
        let directory = root.appendingPathComponent("Sources/\(room)")
        let files = FileManager.default.enumerator(atPath: directory.path)
        var found: [String: Set<String>] = [:]
        while let file = files?.nextObject() as? String {
            guard file.hasSuffix(".swift") else { continue }
            let text = try String(contentsOf: directory.appendingPathComponent(file), encoding: .utf8)
            found["\(room)/\(file)"] = Set(text.split(separator: "\n").compactMap(module))
        }
        return found
    }

    /// The module of an import line, whatever stands before it: `@testable`, `public`, `internal`.
    private static func module(of line: Substring) -> String? {
        let words = line.split(separator: " ")
        guard let index = words.firstIndex(of: "import"), index + 1 < words.count,
            words[..<index].allSatisfy({
                $0.hasPrefix("@") || ["public", "internal", "private"].contains($0)
            })
        else { return nil }
        // `import struct Module.Name`
        let kinds: Set<Substring> = [
            "struct", "class", "enum", "func", "var", "let", "protocol", "typealias",
        ]
        let name = kinds.contains(words[index + 1]) ? words.last : words[index + 1]
        return name?.split(separator: ".").first.map(String.init)
    }

    /// The dependencies of each target in Package.swift.
    private static func declared() throws -> [String: Set<String>] {
        let text = try String(contentsOf: root.appendingPathComponent("Package.swift"), encoding: .utf8)
        var found: [String: Set<String>] = [:]
        // An element of `targets` begins with a dot, eight columns in.
        for element in text.components(separatedBy: "\n        .") where element.contains("arget(") {
            let quoted = element.components(separatedBy: "\"")
            guard quoted.count > 1, quoted[0].contains("name:") else { continue }
            found[quoted[1]] = []
            guard let list = element.range(of: "dependencies: ["),
                let end = element.range(of: "]", range: list.upperBound..<element.endIndex)
            else { continue }
            let pieces = element[list.upperBound..<end.lowerBound].components(separatedBy: "\"")
            for index in stride(from: 1, to: pieces.count, by: 2)
            where !pieces[index - 1].contains("package:") {
                found[quoted[1]]?.insert(pieces[index])
            }
        }
        return found
    }
}
