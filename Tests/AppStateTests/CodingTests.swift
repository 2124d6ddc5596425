import Foundation
import Glibc
import TestSupport
import Testing

@testable import AppState

/// How state is encoded: round trips, the bytes of CBOR, and what does not decode.
@Suite("Saved state as bytes")
struct CodingTests {
    private struct Inner: Codable, Hashable {
        var name: String
        var number: Int?
        var more: [Inner]
    }

    private enum Kind: Codable, Hashable {
        case plain
        case named(String, count: UInt8)
        case nested(Inner)
    }

    private struct All: Codable, Hashable {
        var truth = true
        var int = Int.min
        var small = Int8.min
        var large = UInt64.max
        var zero = 0
        var float = Float.pi
        var double = -1.5e300
        var infinite = Double.infinity
        var text = "Grüße 🌍 \u{0}"
        var empty = ""
        var bytes: [UInt8] = [0, 255, 7]
        var noBytes: [UInt8] = []
        var noTexts: [String] = []
        var missing: String?
        var optionals: [Int?] = [1, nil, 3]
        var map: [String: Inner] = ["a": Inner(name: "b", number: nil, more: [])]
        var numbered: [Int: String] = [7: "seven", -7: "minus seven"]
        var keyed: [Kind: Bool] = [.plain: true]
        var set: Set<Int> = [1, 2, 3]
        var kinds: [Kind] = [.plain, .named("x", count: 200), .nested(Inner(name: "", number: -1, more: []))]
        var deep = Inner(
            name: "one", number: 1,
            more: [Inner(name: "two", number: nil, more: [Inner(name: "three", number: 3, more: [])])])
        var range = 1..<5
    }

    private func roundTrip<Value: Codable>(_ value: Value) throws -> Value {
        try StateDecoder.decode(Value.self, from: try StateEncoder.encode(value))
    }

    @Test("every kind of value is read back as it was written")
    func trips() throws {
        #expect(try roundTrip(All()) == All())
        #expect(try roundTrip("text") == "text")
        #expect(try roundTrip([Int?.none]) == [nil])
        #expect(try roundTrip(Int?.none) == nil)
        #expect(try roundTrip(Double.nan).isNaN)
        let date = Date(timeIntervalSinceReferenceDate: 1.5)
        #expect(try roundTrip(date) == date)
        #expect(try roundTrip(Data([1, 2, 255])) == Data([1, 2, 255]))
        #expect(try roundTrip(URL(string: "https://example.org/a")) == URL(string: "https://example.org/a"))
    }

    @Test("the bytes are CBOR, as in the examples of RFC 8949")
    func examples() throws {
        #expect(try StateEncoder.encode(1_000_000) == [0x1a, 0x00, 0x0f, 0x42, 0x40])
        #expect(try StateEncoder.encode(-1_000) == [0x39, 0x03, 0xe7])
        #expect(try StateEncoder.encode(1.1) == [0xfb, 0x3f, 0xf1, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9a])
        #expect(try StateEncoder.encode("ü") == [0x62, 0xc3, 0xbc])
        #expect(try StateEncoder.encode([UInt8](1...4)) == [0x44, 1, 2, 3, 4])
        #expect(try StateEncoder.encode(["a": "A"]) == [0xa1, 0x61, 0x61, 0x61, 0x41])
        #expect(try StateEncoder.encode([true, false]) == [0x82, 0xf5, 0xf4])
        #expect(try StateEncoder.encode((1...25).map { $0 }).prefix(3) == [0x98, 0x19, 0x01])
    }

    @Test("a newer version of a type reads the keys that it knows")
    func versions() throws {
        struct Old: Codable {
            var text: String
            var gone: Int
        }
        struct New: Codable {
            var text: String
            var added: String?
        }
        let bytes = try StateEncoder.encode(Old(text: "x", gone: 1))
        #expect(try StateDecoder.decode(New.self, from: bytes).text == "x")
        #expect(throws: DecodingError.self) { try StateDecoder.decode(Inner.self, from: bytes) }
        #expect(throws: DecodingError.self) { try StateDecoder.decode(Int.self, from: bytes) }
        #expect(throws: DecodingError.self) {
            try StateDecoder.decode(UInt8.self, from: try StateEncoder.encode(256))
        }
    }

    private final class Loop: Codable {
        var next: Loop?
    }

    private struct Chain: Codable {
        var next: [Chain]
    }

    @Test("state nested more deeply than can be read is not written, nor is state that contains itself")
    func depth() throws {
        let loop = Loop()
        loop.next = loop
        #expect(throws: EncodingError.self) { try StateEncoder.encode(loop) }
        loop.next = nil
        var chain = Chain(next: [])
        for _ in 0..<127 { chain = Chain(next: [chain]) }
        _ = try StateDecoder.decode(Chain.self, from: StateEncoder.encode(chain))
        chain = Chain(next: [Chain(next: [chain])])
        #expect(throws: EncodingError.self) { try StateEncoder.encode(chain) }
    }

    @Test("malformed state is refused without exhausting the memory or the stack")
    func broken() throws {
        let whole = try StateEncoder.encode(All())
        for length in 0..<whole.count {
            #expect(throws: CodedValueFailure.self) { try CodedValue.decode(Array(whole.prefix(length))) }
        }
        #expect(throws: CodedValueFailure.self) { try CodedValue.decode(whole + [0]) }
        #expect(throws: CodedValueFailure.self) {
            try CodedValue.decode([0x9b] + [UInt8](repeating: 255, count: 8))
        }
        #expect(throws: CodedValueFailure.self) {
            try CodedValue.decode([UInt8](repeating: 0x81, count: 1_000_000))
        }
        #expect(throws: CodedValueFailure.self) { try CodedValue.decode([0x61, 0xff]) }
        #expect(throws: CodedValueFailure.self) { try CodedValue.decode([0xa1, 0x01, 0x01]) }
        for byte in UInt8.min...UInt8.max { _ = try? CodedValue.decode([byte, byte, byte, byte]) }
    }

    @Test(
        "an application's id is derived from the name of its program",
        arguments: [
            ("Notes", "Notes"), ("a b/ü", "a-b--"), ("", "application"),
        ])
    func ids(name: String, id: String) {
        #expect(ProgramName.id(of: name) == id)
    }
}
