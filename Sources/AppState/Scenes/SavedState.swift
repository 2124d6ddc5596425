/// What an application with scenes saves: its own state, and its scenes in order.
///
/// The state of an application without scenes is saved as it is.
struct SavedState {
    struct Scene {
        let id: String
        let role: String
        let userInfo: [String: Value]
        let state: [UInt8]?
    }

    /// The application's own state. nil: it has none. Empty: there is nothing to restore.
    let application: [UInt8]?
    let scenes: [Scene]

    private static let applicationKey = "org.appstate1.application"
    private static let scenesKey = "org.appstate1.scenes"
    /// How the bytes of an application with scenes begin.
    private static let beginning = CodedValue.map([applicationKey: .null, scenesKey: .null]).encoded.prefix(
        3 + applicationKey.utf8.count)

    init(application: [UInt8]?, scenes: [Scene]) {
        self.application = application
        self.scenes = scenes
    }

    init(_ bytes: [UInt8]) throws(CodedValueFailure) {
        guard bytes.starts(with: Self.beginning) else {
            self.init(application: bytes, scenes: [])
            return
        }
        guard case .map(let entries) = try CodedValue.decode(bytes),
            case .array(let scenes)? = entries[Self.scenesKey]
        else { throw CodedValueFailure(offset: 0, what: "no list of scenes") }
        var application: [UInt8]?
        if case .bytes(let bytes)? = entries[Self.applicationKey] { application = bytes }
        self.init(application: application, scenes: scenes.compactMap(Scene.init))
    }

    var encoded: [UInt8] {
        CodedValue.map([
            Self.applicationKey: application.map { .bytes($0) } ?? .null,
            Self.scenesKey: .array(scenes.map(\.coded)),
        ]).encoded
    }
}

extension SavedState.Scene {
    fileprivate init?(_ value: CodedValue) {
        guard case .map(let entries) = value, case .text(let id)? = entries["id"],
            case .text(let role)? = entries["role"]
        else { return nil }
        var state: [UInt8]?
        if case .bytes(let bytes)? = entries["state"] { state = bytes }
        var info: Value?
        if case .bytes(let bytes)? = entries["info"] {
            info = (try? CodedValue.decode(bytes)).flatMap(Value.init)
        }
        self.init(id: id, role: role, userInfo: info?.dictionaryValue ?? [:], state: state)
    }

    fileprivate var coded: CodedValue {
        var entries: [String: CodedValue] = ["id": .text(id), "role": .text(role)]
        // As bytes, so that what has too many levels to be read again costs nothing but itself.
        if !userInfo.isEmpty { entries["info"] = .bytes(CodedValue(.dictionary(userInfo)).encoded) }
        if let state { entries["state"] = .bytes(state) }
        return .map(entries)
    }
}

extension CodedValue {
    fileprivate init(_ value: Value) {
        switch value {
        case .string(let value): self = .text(value)
        case .bool(let value): self = .bool(value)
        case .int(let value): self = value < 0 ? .negative(value) : .unsigned(UInt64(value))
        case .uint(let value): self = .unsigned(value)
        case .double(let value): self = .double(value)
        case .bytes(let value): self = .bytes(value)
        case .strings(let values): self = .array(values.map { .text($0) })
        case .array(let values): self = .array(values.map(CodedValue.init))
        case .dictionary(let values): self = .map(values.mapValues(CodedValue.init))
        }
    }
}

extension Value {
    /// nil: it is null, which user info does not contain.
    fileprivate init?(_ value: CodedValue) {
        switch value {
        case .null: return nil
        case .bool(let value): self = .bool(value)
        case .unsigned(let value): self = Int64(exactly: value).map { .int($0) } ?? .uint(value)
        case .negative(let value): self = .int(value)
        case .float(let value): self = .double(Double(value))
        case .double(let value): self = .double(value)
        case .bytes(let value): self = .bytes(value)
        case .text(let value): self = .string(value)
        case .array(let values):
            let list = Value.array(values.compactMap(Value.init))
            self = values.isEmpty ? list : list.stringsValue.map { .strings($0) } ?? list
        case .map(let values): self = .dictionary(values.compactMapValues(Value.init))
        }
    }
}
