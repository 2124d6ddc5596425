import Foundation
import TestSupport
import Testing

/// Which module may import which (docs/architecture). The compiler's own check ignores C targets and what comes with
/// the toolchain.
@Suite("Module imports")
struct HouseTests {
    private static let root = URL(fileURLWithPath: Programs.root)

    /// Each module and what its sources may import. A row names only modules above it.
    private static let rooms: [(name: String, imports: Set<String>)] = [
        ("AppStateContract", []),
        ("LifeCycle", ["AppStateContract"]),
        ("CSystemd", []),
        ("AppStateBus", ["CSystemd", "Glibc"]),
        ("CAppState", []),
        ("AppState", ["AppStateContract", "AppStateBus", "CAppState", "Glibc"]),
        ("Systemd", ["CSystemd", "Glibc"]),
        ("CLinux", []),
        ("Linux", ["CLinux", "Glibc"]),
        ("CXCB", []),
        ("CWayland", []),
        ("Windows", ["CXCB", "CWayland", "Linux", "Glibc"]),
        ("Daemon", ["AppStateContract", "LifeCycle", "AppStateBus", "Systemd", "Linux", "Glibc"]),
        ("appstated", ["AppStateContract", "AppStateBus", "Systemd", "Linux", "Daemon", "Glibc"]),
        ("Desktop", ["AppStateContract", "AppStateBus", "Linux", "Glibc"]),
        ("SessionRules", ["Linux", "Glibc"]),
        (
            "appstate-session",
            [
                "AppStateContract", "AppStateBus", "Systemd", "Linux", "Windows", "SessionRules", "Desktop",
                "Glibc",
            ]
        ),
        ("CCurl", []),
        (
            "appstate-transfer", ["AppStateContract", "AppStateBus", "Systemd", "Linux", "CCurl", "Glibc"]
        ),
        (
            "appstatectl",
            [
                "AppStateContract", "AppStateBus", "Linux", "SessionRules", "Desktop", "ArgumentParser",
                "FoundationEssentials", "Glibc",
            ]
        ),
    ]

    /// What comes with the toolchain or the system and is not a dependency in the package.
    private static let given: Set<String> = ["Glibc", "FoundationEssentials"]

    @Test("every directory of Sources is a listed module")
    func directories() throws {
        let names = try FileManager.default.contentsOfDirectory(atPath: Self.root.path + "/Sources")
        #expect(Set(names) == Set(Self.rooms.map(\.name)))
    }

    @Test("a module imports only modules listed above it")
    func order() {
        var above: Set<String> = Self.given.union(["ArgumentParser"])
        for room in Self.rooms {
            #expect(room.imports.isSubset(of: above), "\(room.name)")
            above.insert(room.name)
        }
    }

    @Test("every import line is one that its module may have")
    func imports() throws {
        for room in Self.rooms {
            for (file, modules) in try Self.imports(in: "Sources/\(room.name)") {
                #expect(modules.isSubset(of: room.imports), "\(file): \(modules.subtracting(room.imports))")
            }
        }
    }

    @Test("only appstatectl imports modules that would make the daemon heavy")
    func heavy() throws {
        let heavy: Set<String> = [
            "Foundation", "FoundationEssentials", "Dispatch", "ArgumentParser", "Synchronization",
            "_Concurrency",
        ]
        for room in Self.rooms where room.name != "appstatectl" {
            for (file, modules) in try Self.imports(in: "Sources/\(room.name)") {
                #expect(modules.isDisjoint(with: heavy), "\(file)")
            }
        }
    }

    @Test("only two modules include systemd's headers, one the kernel's, and one the display servers'")
    func headers() throws {
        for room in Self.rooms {
            let modules = try Self.imports(in: "Sources/\(room.name)").values.reduce(into: Set<String>()) {
                $0.formUnion($1)
            }
            #expect(
                modules.contains("CSystemd") == ["AppStateBus", "Systemd"].contains(room.name), "\(room.name)"
            )
            #expect(modules.contains("CAppState") == (room.name == "AppState"), "\(room.name)")
            #expect(modules.contains("CLinux") == (room.name == "Linux"), "\(room.name)")
            #expect(modules.contains("CXCB") == (room.name == "Windows"), "\(room.name)")
            #expect(modules.contains("CWayland") == (room.name == "Windows"), "\(room.name)")
        }
    }

    @Test("the package declares all dependencies that are imported, and none that may not be")
    func package() throws {
        let targets = try Self.targets()
        for room in Self.rooms where !room.name.hasPrefix("C") {
            let target = try #require(targets.first { $0.name == room.name }, "\(room.name) is no target")
            #expect(target.dependencies.isSubset(of: room.imports), "\(room.name)")
            let used = try Self.imports(of: target).values.reduce(into: Set<String>()) { $0.formUnion($1) }
            #expect(used.subtracting(Self.given).isSubset(of: target.dependencies), "\(room.name)")
        }
    }

    @Test("every target imports its dependencies, except for what it only starts")
    func unused() throws {
        let targets = try Self.targets()
        let others = targets.filter(\.isProgram).map(\.name)
        for target in targets {
            let used = try Self.imports(of: target).values.reduce(into: Set(others)) { $0.formUnion($1) }
            #expect(target.dependencies.isSubset(of: used), "\(target.name)")
        }
    }

    /// A target of Package.swift, except for the system's libraries.
    private struct Target {
        let name: String
        let isProgram: Bool
        let path: String
        let excluded: [String]
        let dependencies: Set<String>

        /// - Parameter element: its lines, without the dot in front.
        init?(_ element: String) {
            let kinds = ["t", "executableT", "testT"]
            guard let kind = kinds.first(where: { element.hasPrefix($0 + "arget(") }),
                let name = Self.texts(after: "name:", in: element, until: ",").first
            else { return nil }
            self.name = name
            isProgram = kind == "executableT"
            path =
                Self.texts(after: "path:", in: element, until: ",").first
                ?? (kind == "testT" ? "Tests/\(name)" : "Sources/\(name)")
            excluded = Self.texts(after: "exclude: [", in: element, until: "]")
            dependencies = Set(Self.texts(after: "dependencies: [", in: element, until: "]"))
        }

        /// The literals of a list or of a single value, except for those that name a package.
        private static func texts(after begin: String, in element: String, until end: String) -> [String] {
            guard let start = element.range(of: begin)?.upperBound,
                let stop = element.range(of: end, range: start..<element.endIndex)?.lowerBound
            else { return [] }
            let pieces = element[start..<stop].components(separatedBy: "\"")
            return stride(from: 1, to: pieces.count, by: 2)
                .filter { !pieces[$0 - 1].contains("package:") }.map { pieces[$0] }
        }
    }

    /// The targets of Package.swift: an element of `targets` begins with a dot, eight columns in.
    private static func targets() throws -> [Target] {
        try String(contentsOf: root.appendingPathComponent("Package.swift"), encoding: .utf8)
            .components(separatedBy: "\n        .").compactMap { Target($0) }
    }

    private static func imports(of target: Target) throws -> [String: Set<String>] {
        try imports(in: target.path).filter { file, _ in
            !target.excluded.contains { file.hasPrefix("\(target.path)/\($0)/") }
        }
    }

    /// The modules that each source file of a directory imports.
    private static func imports(in path: String) throws -> [String: Set<String>] {
        let directory = root.appendingPathComponent(path)
        let files = FileManager.default.enumerator(atPath: directory.path)
        var found: [String: Set<String>] = [:]
        while let file = files?.nextObject() as? String {
            guard file.hasSuffix(".swift") else { continue }
            let text = try String(contentsOf: directory.appendingPathComponent(file), encoding: .utf8)
            found["\(path)/\(file)"] = Set(text.split(separator: "\n").compactMap(module))
        }
        return found
    }

    /// The module of an import line, whatever precedes `import`: `@testable`, `public`, `internal`.
    private static func module(of line: Substring) -> String? {
        let words = line.split(separator: " ")
        guard let index = words.firstIndex(of: "import"), index + 1 < words.count,
            words[..<index].allSatisfy({
                $0.hasPrefix("@")
                    || ["public", "package", "internal", "fileprivate", "private"].contains($0)
            })
        else { return nil }
        // `import struct Module.Name`
        let kinds: Set<Substring> = [
            "struct", "class", "enum", "func", "var", "let", "protocol", "typealias",
        ]
        let name = kinds.contains(words[index + 1]) ? words.last : words[index + 1]
        return name?.split(separator: ".").first.map(String.init)
    }
}
