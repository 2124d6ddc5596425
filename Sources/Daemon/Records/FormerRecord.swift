import LifeCycle
import Linux

/// Files as they were written before `RecordFile`: lines `key=value`, the last of them `complete=yes`. They are not taken up;
/// whom they hold is let go.
enum FormerRecord {
    static func isOne(_ bytes: [UInt8]) -> Bool {
        bytes.starts(with: "number=".utf8) || bytes.starts(with: "resource=".utf8)
    }

    fileprivate static let damage = "an earlier version wrote it"

    /// Whom it holds, as a record of today says it; nil for another file.
    static func reading(_ bytes: [UInt8]) -> RecordFile.Reading? {
        guard isOne(bytes) else { return nil }
        let lines = lines(bytes)
        func values(_ key: String) -> [[UInt8]] { lines.filter { $0.key == key }.map(\.value) }
        func word(_ key: String) -> String {
            values(key).first.map { String(decoding: $0, as: UTF8.self) } ?? ""
        }
        func processes(_ key: String) -> [ProcessIdentity] { values(key).compactMap(process) }

        var record = Record()
        var holding = Holding()
        if let main = processes("process").first, let user = UInt32(word("user")) {
            record.add("process", ProcessID(main).fields)
            record.add("user", String(user))
            if let path = values("frozen-cgroup").first.flatMap(text) {
                holding.freeze = Holding.Freeze(path: path, identifier: nil, user: user, main: main)
            } else if !values("hold").isEmpty || !word("enforcement").hasPrefix("none") {
                holding.stop = Holding.Stop(user: user, main: main, standing: processes("standing"))
            }
            holding.stopped = processes("stopped-process").map {
                Holding.Stopped(process: $0, user: user)
            }
        }
        record.lines += holding.lines
        return RecordFile.Reading(record, damage: damage)
    }

    static func resources(_ bytes: [UInt8]) -> [String] {
        lines(bytes).filter { $0.key == "resource" }.compactMap { text($0.value) }
    }

    private static let end = Array("complete=yes\n".utf8)

    private static func lines(_ bytes: [UInt8]) -> [(key: String, value: [UInt8])] {
        // Of one that was cut off, the last line is.
        let isWhole = bytes.suffix(end.count).elementsEqual(end)
        return bytes.split(separator: UInt8(ascii: "\n")).dropLast(isWhole ? 0 : 1).compactMap { line in
            guard let equals = line.firstIndex(of: UInt8(ascii: "=")) else { return nil }
            return (String(decoding: line[..<equals], as: UTF8.self), Array(line[(equals + 1)...]))
        }
    }

    private static func process(_ value: [UInt8]) -> ProcessIdentity? {
        let parts = value.split(separator: UInt8(ascii: ":")).map { String(decoding: $0, as: UTF8.self) }
        guard parts.count == 2, let pid = Int32(parts[0]), pid > 0, let start = UInt64(parts[1]) else {
            return nil
        }
        return ProcessIdentity(pid: pid, startTime: start)
    }

    /// A value with C's escapes.
    private static func text(_ value: [UInt8]) -> String? {
        var bytes: [UInt8] = []
        var rest = value[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "\\") else {
                bytes.append(byte)
                continue
            }
            switch rest.popFirst() {
            case UInt8(ascii: "n"): bytes.append(0x0A)
            case UInt8(ascii: "r"): bytes.append(0x0D)
            case UInt8(ascii: "t"): bytes.append(0x09)
            case UInt8(ascii: "0"): bytes.append(0)
            case UInt8(ascii: "\\"): bytes.append(UInt8(ascii: "\\"))
            default: return nil
            }
        }
        return String(validating: bytes, as: UTF8.self)
    }
}

extension RecordFile.Reading {
    var isFormer: Bool { damage == FormerRecord.damage }
}
