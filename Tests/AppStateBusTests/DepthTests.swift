import AppStateBus
import Glibc
import TestSupport
import Testing

/// A message that the bus would refuse is never composed.
@Suite("Depth of values") struct DepthTests {
    private func nested(_ depth: Int) -> Variant {
        (0..<depth).reduce(Variant.bool(true)) { inner, _ in .dictionary(["x": inner]) }
    }

    @Test func everyLevelCounts() {
        let values: [(Variant, Int)] = [
            (.string("x"), 0), (.bytes([1]), 1), (.strings([]), 1), (.dictionary([:]), 1),
            (.dictionary(["a": .array("as", [.strings(["x"])])]), 3), (.array("aai", []), 3),
            (.array("(sa{sv}(i))", []), 3), (.array("a{sa(s)}", []), 4),
            (.structure([.uint32(1), .structure([.bool(true)])]), 2),
            (.variant(.bool(true)), 0), (.variant(.variant(.variant(.bool(true)))), 2),
            (.array("v", [.variant(.array("v", [.variant(.byte(1))]))]), 2),
            (.array("{us}", [.entry(.uint32(1), .string("x"))]), 1),
        ]
        for (value, depth) in values { #expect(value.depth == depth, "\(value)") }
    }

    @Test(.enabled(if: hasBus, noBus)) func whatIsTooDeepIsNotAppended() throws {
        let peers = try Peers()
        let call = try peers.client.newCall(
            destination: "org.example", path: "/", interface: "org.example.A", member: "B")
        try call.append(nested(Variant.greatestDepth))
        do throws(BusFailure) {
            try call.append(nested(Variant.greatestDepth + 1))
            Issue.record("a value that is too deep was appended")
        } catch {
            #expect(error.errno == EMSGSIZE)
        }
        #expect(throws: BusFailure.self) {
            try call.appendDictionary([("x", nested(Variant.greatestDepth + 1))])
        }
    }
}
