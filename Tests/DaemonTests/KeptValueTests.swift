import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// What the daemon keeps for clients goes into messages to others, and stays in memory. It is bounded, and no message
/// becomes one that the bus does not accept.
@Suite(
    "Values that are kept for clients",
    .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct KeptValueTests {
    private static let limitsExceeded = ErrorName.limitsExceeded.rawValue

    /// A value of `depth` nested containers of one kind.
    private func nested(_ kind: String, _ depth: Int) -> Variant {
        (1..<depth).reduce(Variant.dictionary(["x": .bool(true)])) { inner, _ in
            switch kind {
            case "dictionary": .dictionary(["x": inner])
            case "array": .array(inner.signature, [inner])
            case "structure": .structure([inner])
            default: .array("v", [.variant(inner)])
            }
        }
    }

    /// Makes the daemon send every message that contains launch options.
    private func readAll(_ client: Client, _ path: String) throws {
        try client.call(BusNames.root, BusNames.objectManager, "GetManagedObjects")
        try client.call(path, BusNames.properties, "GetAll") { try $0.append(BusNames.application) }
        try client.call(path, BusNames.properties, "GetAll") { try $0.append("") }
        _ = try client.property(path, "LaunchOptions")
        _ = try client.explain(path)
        try client.settle()
    }

    @Test(
        "launch options at the greatest depth allowed can be read, and deeper ones are refused",
        arguments: ["dictionary", "array", "structure", "variant"])
    func depth(_ kind: String) throws {
        let daemon = try TestDaemon()
        // It subscribes, so it is also sent InterfacesAdded and WillFinishLaunching.
        let client = try daemon.subscriber()
        let process = try Child("sleep", ["1000"])
        for depth in 1...Variant.greatestDepth - 1 {
            let options = nested(kind, depth)
            guard case .dictionary = options else {
                // This is inside of the options, which are a level themselves.
                try register(client, process, .dictionary(["x": options]), isTaken: depth < 8)
                continue
            }
            try register(client, process, options, isTaken: depth <= 8)
        }
        #expect(try client.list() == [])
        #expect(daemon.process.advance() == nil)
    }

    private func register(_ client: Client, _ process: Child, _ options: Variant, isTaken: Bool) throws {
        var path: String?
        // What the bus does not let through, the daemon need not refuse.
        let error = client.error {
            path = try client.register("org.example.App", process.pid, [("launch-options", options)])
        }
        guard let path else {
            #expect(!isTaken, "depth \(options.depth): \(error ?? "")")
            #expect(error == Self.limitsExceeded, "depth \(options.depth)")
            return
        }
        #expect(isTaken, "depth \(options.depth)")
        try readAll(client, path)
        try client.application(path, "Unregister")
        try client.settle()
    }
}
