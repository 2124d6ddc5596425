import AppStateBus
import Testing

@Suite("Variants as texts")
struct VariantTextTests {
    private static let nasty = ["", " ", "\\\u{301}", "=\u{301}", "\n", "\u{200D}", "7", "a{sv}", "("]

    @Test("every kind of value is read back as it was, and the text after it is not consumed")
    func kinds() {
        var values: [Variant] = [
            .bool(true), .bool(false), .byte(255), .int16(-1), .uint16(.max), .int32(.min), .uint32(.max),
            .int64(.min), .uint64(.max), .double(-0.5), .double(.infinity), .objectPath("/a/b"),
            .signature("a{sv}"),
            .bytes([]), .bytes([0, 10, 255]), .strings([]), .strings(Self.nasty), .array("i", []),
            .array("(su)", [.structure([.string(" "), .uint32(7)])]),
            .array("{sv}", [.entry(.string(""), .variant(.string("\n")))]), .variant(.variant(.byte(1))),
        ]
        values += Self.nasty.map(Variant.string)
        values += Self.nasty.map { .dictionary([$0: .string($0), "x": .dictionary([$0: .byte(1)])]) }
        for value in values {
            let texts = value.texts ?? []
            var rest = (texts + ["next"])[...]
            #expect(Variant(texts: &rest) == value)
            #expect(rest == ["next"])
            // A truncated value is not read.
            for length in texts.indices {
                var cut = texts.prefix(length)
                #expect(Variant(texts: &cut) == nil, "\(texts.prefix(length))")
            }
        }
        #expect(Variant.dictionary(["a": .descriptor]).texts == nil)
    }

    @Test(
        "malformed text is refused",
        arguments: [
            ["z"], ["u", "-1"], ["u", "1 "], ["ay", "1"], ["ay", "1G"], ["as", "2", "a"], ["as", "-1"], ["v"],
        ])
    func wrong(_ texts: [String]) {
        var rest = texts[...]
        #expect(Variant(texts: &rest) == nil)
    }

    @Test("text nested more deeply than the bus allows is refused, whatever its content")
    func depth() {
        var rest = Array(repeating: "v", count: 1_000_000)[...]
        #expect(Variant(texts: &rest) == nil)
    }
}
