import CSystemd
import Glibc

extension Message {
    /// Makes the bus answer a call to a service that does not run, instead of starting it:
    /// sd_bus_message_set_auto_start(3).
    public borrowing func forbidStart() throws(BusFailure) {
        try check(sd_bus_message_set_auto_start(pointer, 0), "forbid the start for", subject)
    }

    /// Appends `s`. A string that contains a NUL is refused, because D-Bus does not allow it. Noncharacters of Unicode,
    /// such as U+FFFE, become U+FFFD: the specification allows them, libsystemd refuses them.
    public borrowing func append(_ value: String) throws(BusFailure) {
        try append(text: value, type: "s")
    }

    /// Appends `o`; anything but an object path is refused.
    public borrowing func append(objectPath value: String) throws(BusFailure) {
        try append(text: value, type: "o")
    }

    /// Appends `g`; anything but a signature is refused.
    public borrowing func append(signature value: String) throws(BusFailure) {
        try append(text: value, type: "g")
    }

    /// Appends `b`.
    public borrowing func append(_ value: Bool) throws(BusFailure) {
        try append(basic: Int32(value ? 1 : 0), type: "b")
    }

    /// Appends `y`.
    public borrowing func append(_ value: UInt8) throws(BusFailure) { try append(basic: value, type: "y") }

    /// Appends `n`.
    public borrowing func append(_ value: Int16) throws(BusFailure) { try append(basic: value, type: "n") }

    /// Appends `q`.
    public borrowing func append(_ value: UInt16) throws(BusFailure) { try append(basic: value, type: "q") }

    /// Appends `i`.
    public borrowing func append(_ value: Int32) throws(BusFailure) { try append(basic: value, type: "i") }

    /// Appends `u`.
    public borrowing func append(_ value: UInt32) throws(BusFailure) { try append(basic: value, type: "u") }

    /// Appends `x`.
    public borrowing func append(_ value: Int64) throws(BusFailure) { try append(basic: value, type: "x") }

    /// Appends `t`.
    public borrowing func append(_ value: UInt64) throws(BusFailure) { try append(basic: value, type: "t") }

    /// Appends `d`.
    public borrowing func append(_ value: Double) throws(BusFailure) { try append(basic: value, type: "d") }

    /// Appends `h`: a duplicate is sent, and the caller keeps the descriptor.
    public borrowing func append(descriptor value: Int32) throws(BusFailure) {
        try append(basic: value, type: "h")
    }

    /// Appends `ay`.
    public borrowing func append(bytes: [UInt8]) throws(BusFailure) {
        let result = bytes.withUnsafeBytes {
            sd_bus_message_append_array(pointer, CChar(UInt8(ascii: "y")), $0.baseAddress, $0.count)
        }
        try check(result, "append ay", "to \(subject)")
    }

    /// Appends `as`.
    public borrowing func append(strings: [String]) throws(BusFailure) {
        try open(.array, "s")
        for string in strings {
            try append(string)
        }
        try close()
    }

    /// Appends `at`.
    public borrowing func append(_ numbers: [UInt64]) throws(BusFailure) {
        try open(.array, "t")
        for number in numbers { try append(number) }
        try close()
    }

    /// Appends `au`.
    public borrowing func append(_ numbers: [UInt32]) throws(BusFailure) {
        try open(.array, "u")
        for number in numbers { try append(number) }
        try close()
    }

    /// Appends a container with the contents that `body` appends.
    ///
    /// - Parameters:
    ///   - kind: the kind of container.
    ///   - contents: its signature without the container itself: `{sv}` for `a{sv}`, `su` for `(su)`.
    ///   - body: appends the contents to this message. What it throws is passed on (a `MethodError` as the name and
    ///     message of the failure); the message must not be sent then.
    public borrowing func withContainer<Failure: Error>(
        _ kind: Container, _ contents: String, _ body: () throws(Failure) -> Void
    ) throws(BusFailure) {
        try open(kind, contents)
        do {
            try body()
        } catch {
            throw BusFailure(error, from: "append a container", to: subject)
        }
        try close()
    }

    /// Appends `a{sv}` in the order given.
    public borrowing func appendDictionary(_ entries: [(String, Variant)]) throws(BusFailure) {
        try open(.array, "{sv}")
        for (key, value) in entries {
            try open(.dictEntry, "sv")
            try append(key)
            try append(value)
            try close()
        }
        try close()
    }

    /// Appends an entry of `a{sv}`, whose value `body` appends.
    public borrowing func appendEntry(
        _ name: String, _ type: String, _ body: () throws -> Void
    ) throws {
        try open(.dictEntry, "sv")
        try append(name)
        try open(.variant, type)
        try body()
        try close()
        try close()
    }

    /// Opens a container that is filled until `close()`. Typed throws pass through; otherwise use `withContainer`.
    public borrowing func open(_ kind: Container, _ contents: String) throws(BusFailure) {
        // Unlike withCString, a string that is passed as it is becomes an array first.
        let result = contents.withCString {
            sd_bus_message_open_container(pointer, CChar(kind.rawValue), $0)
        }
        try check(result, "open a container of \(contents)", "in \(subject)")
    }

    /// Closes the container that was opened last.
    public borrowing func close() throws(BusFailure) {
        try check(sd_bus_message_close_container(pointer), "close a container", "in \(subject)")
    }

    private borrowing func append(text value: String, type: Unicode.Scalar) throws(BusFailure) {
        let result = value.withCString { string in
            strlen(string) == value.utf8.count
                ? sd_bus_message_append_basic(pointer, CChar(UInt8(ascii: type)), string) : -EINVAL
        }
        if result == -EINVAL, type == "s", let text = value.withoutNoncharacters {
            return try append(text: text, type: type)
        }
        try check(result, "append \(type)", "to \(subject)")
    }

    private borrowing func append<Value: BitwiseCopyable>(
        basic value: Value, type: Unicode.Scalar
    ) throws(BusFailure) {
        let result = withUnsafePointer(to: value) {
            sd_bus_message_append_basic(pointer, CChar(UInt8(ascii: type)), $0)
        }
        try check(result, "append \(type)", "to \(subject)")
    }
}

extension String {
    /// The text with U+FFFD in place of each noncharacter; nil: it has none.
    var withoutNoncharacters: String? {
        guard unicodeScalars.contains(where: \.properties.isNoncharacterCodePoint) else { return nil }
        return String(
            String.UnicodeScalarView(
                unicodeScalars.map { $0.properties.isNoncharacterCodePoint ? "\u{FFFD}" : $0 }))
    }
}
