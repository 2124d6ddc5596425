import Linux

extension JSON {
    /// Reads one JSON text.
    init(reading bytes: [UInt8]) throws(JSONReader.Failure) {
        var reader = JSONReader(bytes)
        self = try Self.value(&reader)
        try reader.end()
    }

    private static func value(_ reader: inout JSONReader) throws(JSONReader.Failure) -> JSON {
        switch reader.peek().map({ Character(Unicode.Scalar($0)) }) {
        case "{":
            try reader.beginObject()
            var members: [Member] = []
            while let name = try reader.nextKey() {
                members.append(Member(name: name, value: try value(&reader)))
            }
            return .members(members)
        case "[":
            try reader.beginArray()
            var values: [JSON] = []
            while try reader.nextElement() { values.append(try value(&reader)) }
            return .array(values)
        case "\"": return .string(try reader.string())
        case "t", "f": return .bool(try reader.bool())
        case "n":
            _ = try reader.null()
            return .null
        default:
            let text = try reader.number()
            if let number = UInt64(text) { return .unsigned(number) }
            if let number = Int64(text) { return .signed(number) }
            guard let number = Double(text) else { throw reader.failure("a number") }
            return .double(number)
        }
    }
}
