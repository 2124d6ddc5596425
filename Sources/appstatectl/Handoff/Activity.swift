import AppStateBus
import AppStateContract
import Glibc
import Linux

/// What a user is doing in an application, on its way to another machine: one line of JSON.
struct Activity: Equatable {
    /// The application that announced it.
    var appID: String
    var type: String
    var info: [String: Variant]
    /// The file that follows the line.
    var file: File?
    /// Of the activities with one id, the receiver delivers only those whose number is higher than any before. A
    /// second attempt has the same number, so that it is delivered once, and an attempt that arrives late is no news.
    var id: String
    var number: UInt64

    struct File: Equatable {
        let name: String
        let size: UInt64
    }

    /// An activity that has not been sent before.
    init(appID: String, type: String, info: [String: Variant]) {
        (self.appID, self.type, self.info, number) = (appID, type, info, 1)
        id = Self.newID()
    }

    /// 128 random bits.
    private static func newID() -> String {
        var random = SystemRandomNumberGenerator()
        return (0..<2).map { _ in
            let digits = String(random.next() as UInt64, radix: 16)
            return String(repeating: "0", count: 16 - digits.count) + digits
        }.joined()
    }

    /// Whether it says the same, whatever its number.
    func says(_ other: Activity) -> Bool {
        var same = other
        (same.id, same.number) = (id, number)
        return self == same
    }

    // MARK: JSON

    var json: JSON {
        var members: [(String, JSON)] = [
            ("id", .string(id)), ("number", .unsigned(number)), ("app_id", .string(appID)),
            ("type", .string(type)), ("info", JSON(typed: info)),
        ]
        if let file {
            members.append(
                ("file", .object([("name", .string(file.name)), ("size", .unsigned(file.size))])))
        }
        return .object(members)
    }

    /// Reads the line that `json` makes, on this machine or on another.
    init(line: [UInt8]) throws(Failure) {
        let json: JSON
        do {
            json = try JSON(reading: line)
        } catch {
            throw Failure("the activity is not readable JSON")
        }
        id = try json.string("id")
        number = try json.number("number")
        appID = try json.string("app_id")
        type = try json.string("type")
        guard !type.isEmpty, ApplicationID(appID) != nil, Self.isID(id) else {
            throw Failure("the activity has a malformed id, app_id or type")
        }
        guard let info = try json.member("info").typedEntries() else {
            throw Failure("the info of the activity is not a value of D-Bus")
        }
        self.info = info
        if let file = json["file"] {
            self.file = File(name: try file.string("name"), size: try file.number("size"))
        }
    }

    private static func isID(_ text: String) -> Bool {
        text.utf8.count == 32 && text.utf8.allSatisfy { "0123456789abcdef".utf8.contains($0) }
    }
}

extension JSON {
    /// The member of an object with this name.
    subscript(name: String) -> JSON? {
        guard case .members(let members) = self else { return nil }
        return members.last { $0.name == name }?.value
    }

    func member(_ name: String) throws(Failure) -> JSON {
        guard let value = self[name] else { throw Failure("the activity has no \(name)") }
        return value
    }

    func string(_ name: String) throws(Failure) -> String {
        guard case .string(let text) = try member(name), !text.utf8.contains(0) else {
            throw Failure("\(name) of the activity is not a string")
        }
        return text
    }

    func number(_ name: String) throws(Failure) -> UInt64 {
        guard case .unsigned(let number) = try member(name) else {
            throw Failure("\(name) of the activity is not a number")
        }
        return number
    }
}
