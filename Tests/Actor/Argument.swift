import AppStateBus
import Glibc
import Linux

/// How arguments are written in commands and answers: `s:text`, `u:7`, `t:7`, `b:true`, `as:one+two`,
/// `ay:text`, `zeros:BYTES` for `ay`, `memory:text` and `memory-zeros:BYTES` for a sealed memory file,
/// `unsealed:text` for one that is not sealed, `large:BYTES` for `a{sv}`, `h:PID` for a pidfd of
/// that process, `a(us):7=text+8=text`, and `{key=s:text,key=b:true}` for `a{sv}`.
enum Argument {
    // Each kind has a function of its own: with all kinds in one function, Swift 6.0.3 crashes over the borrowed
    // message.
    static func append(_ word: String, to message: borrowing Message) throws {
        if word.hasPrefix("{") { return try appendDictionary(word, to: message) }
        if word.hasPrefix("h:") { return try appendPidFD(word, to: message) }
        if word.hasPrefix("a(us):") { return try appendRows(word, to: message) }
        if word.hasPrefix("memory") || word.hasPrefix("unsealed:") {
            return try appendMemory(word, to: message)
        }
        try appendValue(try value(word), to: message)
    }

    private static func appendDictionary(_ word: String, to message: borrowing Message) throws {
        let entries = try entries(word)
        try message.appendDictionary(entries)
    }

    private static func appendPidFD(_ word: String, to message: borrowing Message) throws {
        let descriptor = try PidFD(pid: pid(word))
        try message.append(descriptor: descriptor.rawValue)
    }

    private static func appendMemory(_ word: String, to message: borrowing Message) throws {
        let memory = try memory(word)
        try message.append(descriptor: memory.rawValue)
    }

    private static func appendRows(_ word: String, to message: borrowing Message) throws {
        let rows = try rows(word)
        try message.withContainer(.array, "(us)") {
            for row in rows {
                try message.withContainer(.struct, "us") {
                    try message.append(row.number)
                    try message.append(row.text)
                }
            }
        }
    }

    private static func appendValue(_ value: Variant, to message: borrowing Message) throws {
        switch value {
        case .string(let value): try message.append(value)
        case .uint32(let value): try message.append(value)
        case .uint64(let value): try message.append(value)
        case .bool(let value): try message.append(value)
        case .strings(let value): try message.append(strings: value)
        case .bytes(let value): try message.append(bytes: value)
        default: throw unknown("\(value)")
        }
    }

    /// The readable parts of a message, as words. A list of applications becomes its paths; dictionaries are left out.
    static func words(of message: borrowing Message) -> [String] {
        var words: [String] = []
        do {
            while let next = try message.peek() {
                switch next.type {
                case "s": words.append(try message.readString())
                case "o": words.append(try message.readObjectPath())
                case "u": words.append(String(try message.readUInt32()))
                case "t": words.append(String(try message.readUInt64()))
                case "b": words.append(String(try message.readBool()))
                case "v": words.append("\(try message.readVariant())")
                case "h": words.append(try Memory.text(of: try message.readDescriptor()))
                case "a" where next.contents == "y": words.append(Memory.text(try message.readBytes()))
                case "a" where next.contents == "(osuus)":
                    try message.withEntered(.array, "(osuus)") {
                        while !message.atEnd {
                            try message.withEntered(.struct, "osuus") {
                                words.append(try message.readObjectPath())
                                try message.skip("suus")
                            }
                        }
                    }
                default: return words
                }
            }
        } catch {
            words.append("unreadable")
        }
        return words
    }

    private static func entries(_ word: String) throws -> [(String, Variant)] {
        guard word.hasSuffix("}") else { throw unknown(word) }
        return try word.dropFirst().dropLast().split(separator: ",").map(entry)
    }

    private static func pid(_ word: String) throws -> Int32 { Int32(try parts(word).text) ?? -1 }

    private static func memory(_ word: String) throws -> Descriptor {
        let (type, text) = try parts(word)
        guard let memory = try Memory.file(type, text) else { throw unknown(word) }
        return memory
    }

    private static func rows(_ word: String) throws -> [(number: UInt32, text: String)] {
        try parts(word).text.split(separator: "+").map { row in
            let members = row.split(separator: "=", maxSplits: 1)
            return (UInt32(members.first ?? "") ?? 0, String(members.last ?? ""))
        }
    }

    private static func entry(_ text: Substring) throws -> (String, Variant) {
        guard let equals = text.firstIndex(of: "=") else { throw unknown(String(text)) }
        return (String(text[..<equals]), try value(String(text[text.index(after: equals)...])))
    }

    private static func value(_ word: String) throws -> Variant {
        let (type, text) = try parts(word)
        switch type {
        case "s": return .string(text)
        case "u": return .uint32(UInt32(text) ?? 0)
        case "t": return .uint64(UInt64(text) ?? 0)
        case "b": return .bool(text == "true")
        case "zeros": return .bytes([UInt8](repeating: 0, count: Int(text) ?? 0))
        case "ay": return .bytes(Array(text.utf8))
        case "large": return .dictionary(["x": .bytes([UInt8](repeating: 0, count: Int(text) ?? 0))])
        case "as": return .strings(text.split(separator: "+").map(String.init))
        default: throw unknown(word)
        }
    }

    private static func parts(_ word: String) throws -> (type: String, text: String) {
        guard let colon = word.firstIndex(of: ":") else { throw unknown(word) }
        return (String(word[..<colon]), String(word[word.index(after: colon)...]))
    }

    private static func unknown(_ word: String) -> BusFailure {
        BusFailure(operation: "read the argument", subject: word, errno: EINVAL)
    }
}
