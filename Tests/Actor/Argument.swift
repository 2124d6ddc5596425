import AppStateBus
import Glibc
import Linux

/// How arguments are written in commands and answers: `s:text`, `u:7`, `t:7`, `b:true`, `as:one+two`,
/// `ay:text`, `zeros:BYTES` for `ay`, `memory:text` and `memory-zeros:BYTES` for a sealed memory file and `unsealed:text` for
/// one that is not, `nested:DEPTH` and `large:BYTES` for `a{sv}`, `h:PID` for a pidfd of that process, `a(us):7=text+8=text`, and `{key=s:text,key=b:true}` for `a{sv}`.
enum Argument {
    static func append(_ word: String, to message: borrowing Message) throws {
        if word.hasPrefix("{"), word.hasSuffix("}") {
            let entries = word.dropFirst().dropLast().split(separator: ",")
            try message.appendDictionary(try entries.map(entry))
            return
        }
        let (type, text) = try parts(word)
        if type == "h" {
            let descriptor = try PidFD(pid: Int32(text) ?? -1)
            try message.append(descriptor: descriptor.rawValue)
            return
        }
        if let memory = try Memory(type, text) {
            try message.append(descriptor: memory.descriptor.rawValue)
            return
        }
        if type == "a(us)" {
            try message.withContainer(.array, "(us)") {
                for row in text.split(separator: "+") {
                    let members = row.split(separator: "=", maxSplits: 1)
                    try message.withContainer(.struct, "us") {
                        try message.append(UInt32(members.first ?? "") ?? 0)
                        try message.append(String(members.last ?? ""))
                    }
                }
            }
            return
        }
        switch try value(word) {
        case .string(let value): try message.append(value)
        case .uint32(let value): try message.append(value)
        case .uint64(let value): try message.append(value)
        case .bool(let value): try message.append(value)
        case .strings(let value): try message.append(strings: value)
        case .bytes(let value): try message.append(bytes: value)
        default: throw unknown(word)
        }
    }

    /// What can be read of a message, as words: of a list of applications the paths; dictionaries are left out.
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
        case "nested":
            return (1..<(Int(text) ?? 1)).reduce(Variant.dictionary([:])) { inner, _ in
                .dictionary(["x": inner])
            }
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
