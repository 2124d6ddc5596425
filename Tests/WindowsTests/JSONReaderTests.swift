import Testing

@testable import Linux
@testable import Windows

/// The JSON that sway and i3 send, and malformed JSON.
@Suite("JSON")
struct JSONReaderTests {
    @Test(
        "well-formed JSON is skipped as a whole",
        arguments: [
            "null", "true", "false", "0", "-0", "12", "-1.5e+10", "1E5", #""""#, #""a\"\\\/\b\f\n\r\té""#,
            "[]", "{}",
            " [ 1 , [ ] , { \"a\" : null , \"b\" : [ true ] } ] \n", #"{"a":{"b":{"c":[{}]}},"d":""}"#,
        ])
    func valid(_ text: String) throws {
        var json = JSONReader(Array(text.utf8))
        try json.skip()
        try json.end()
    }

    @Test(
        "malformed JSON is refused",
        arguments: [
            "", " ", "nul", "True", "+1", "01", "1.", ".5", "1e", "-", "\"", "\"\\\"", #""\x""#, #""\u12g4""#,
            "\"\n\"",
            "[", "]", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "{", "{]", "[}", #"{"a"}"#, #"{"a":}"#,
            #"{"a":1,}"#, "{1:2}",
            #"{"a":1 "b":2}"#, "1 2", "[] []",
        ])
    func invalid(_ text: String) {
        #expect(throws: JSONReader.Failure.self) {
            var json = JSONReader(Array(text.utf8))
            try json.skip()
            try json.end()
        }
    }

    @Test(
        "strings are decoded",
        arguments: [
            (#""plain""#, "plain"), (#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t"),
            (#""\u00e9\u4f60""#, "é你"),
            (#""\ud83d\udc4b""#, "👋"), (#""\ud83d""#, "\u{FFFD}"), (#""\udc4bx""#, "\u{FFFD}x"),
            (#""\ud83d\u0041""#, "\u{FFFD}A"), (#""\ud83d\n""#, "\u{FFFD}\n"), ("\"你\"", "你"),
        ])
    func strings(_ text: String, _ expected: String) throws {
        var json = JSONReader(Array(text.utf8))
        #expect(try json.string() == expected)
        try json.end()
    }

    @Test("members and elements are visited, including those that are skipped")
    func structure() throws {
        var json = JSONReader(Array(#"{"a": [1, [2], {"x": 3}, 4], "b": {"c": null}, "d": 5}"#.utf8))
        var numbers: [Int64] = []
        try json.beginObject()
        while let key = try json.nextKey() {
            switch key {
            case "a":
                try json.beginArray()
                var index = 0
                while try json.nextElement() {
                    if index % 3 == 0 { numbers.append(try json.integer()) } else { try json.skip() }
                    index += 1
                }
            case "d": numbers.append(try json.integer())
            default: try json.skip()
            }
        }
        try json.end()
        #expect(numbers == [1, 4, 5])
    }

    @Test("JSON is read up to the permitted depth and refused beyond it")
    func depth() throws {
        func skip(_ depth: Int) throws {
            let text = String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
            var json = JSONReader(Array(text.utf8))
            try json.skip()
            try json.end()
        }
        try skip(JSONReader.mostDepth)
        #expect(throws: JSONReader.Failure.self) { try skip(JSONReader.mostDepth + 1) }
        #expect(throws: JSONReader.Failure.self) { try skip(1_000_000) }
    }

    @Test("an event about a new title names the window; others do not, and one that is cut off is refused")
    func title() throws {
        let event = Array(
            #"{"change":"title","container":{"id":7,"type":"con","name":"new","window":9,"nodes":[]}}"#.utf8)
        let node = try #require(try TreeNode.retitled(by: event))
        #expect(node.id == 7)
        #expect(node.window == 9)
        #expect(node.name == Array("new".utf8))
        for text in [#"{"change":"focus","container":{"id":7,"name":"title"}}"#, #"{"change":"title"}"#] {
            #expect(try TreeNode.retitled(by: Array(text.utf8))?.id == nil)
        }
        for length in event.indices {
            #expect(throws: JSONReader.Failure.self) { try TreeNode.retitled(by: Array(event[..<length])) }
        }
    }
}
