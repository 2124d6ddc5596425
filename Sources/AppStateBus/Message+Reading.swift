import CSystemd
import Glibc

extension Message {
    /// Reads `s`.
    public borrowing func readString() throws(BusFailure) -> String { try read(text: "s") }

    /// Reads `o`.
    public borrowing func readObjectPath() throws(BusFailure) -> String { try read(text: "o") }

    /// Reads `g`.
    public borrowing func readSignature() throws(BusFailure) -> String { try read(text: "g") }

    /// Reads `b`.
    public borrowing func readBool() throws(BusFailure) -> Bool { try read("b", Int32(0)) != 0 }

    /// Reads `y`.
    public borrowing func readUInt8() throws(BusFailure) -> UInt8 { try read("y", 0) }

    /// Reads `n`.
    public borrowing func readInt16() throws(BusFailure) -> Int16 { try read("n", 0) }

    /// Reads `q`.
    public borrowing func readUInt16() throws(BusFailure) -> UInt16 { try read("q", 0) }

    /// Reads `i`.
    public borrowing func readInt32() throws(BusFailure) -> Int32 { try read("i", 0) }

    /// Reads `u`.
    public borrowing func readUInt32() throws(BusFailure) -> UInt32 { try read("u", 0) }

    /// Reads `x`.
    public borrowing func readInt64() throws(BusFailure) -> Int64 { try read("x", 0) }

    /// Reads `t`.
    public borrowing func readUInt64() throws(BusFailure) -> UInt64 { try read("t", 0) }

    /// Reads `d`.
    public borrowing func readDouble() throws(BusFailure) -> Double { try read("d", 0) }

    /// Reads `ay`.
    public borrowing func readBytes() throws(BusFailure) -> [UInt8] {
        var bytes: UnsafeRawPointer?
        var count = 0
        let result = sd_bus_message_read_array(pointer, CChar(UInt8(ascii: "y")), &bytes, &count)
        // libsystemd lends no array of a message in the other byte order, not even one of bytes.
        if result == -EOPNOTSUPP { return try readSingleBytes() }
        guard result > 0 else { throw mismatch("ay", result) }
        return Array(UnsafeRawBufferPointer(start: bytes, count: count))
    }

    private borrowing func readSingleBytes() throws(BusFailure) -> [UInt8] {
        guard try enter(.array, "y") else { throw mismatch("ay", 0) }
        var bytes: [UInt8] = []
        while !atEnd { bytes.append(try readUInt8()) }
        try exit()
        return bytes
    }

    /// Reads `as`.
    public borrowing func readStrings() throws(BusFailure) -> [String] {
        guard try enter(.array, "s") else { throw mismatch("as", 0) }
        var strings: [String] = []
        while !atEnd {
            strings.append(try readString())
        }
        try exit()
        return strings
    }

    /// Reads `au`.
    public borrowing func readUInt32s() throws(BusFailure) -> [UInt32] {
        guard try enter(.array, "u") else { throw mismatch("au", 0) }
        var numbers: [UInt32] = []
        while !atEnd { numbers.append(try readUInt32()) }
        try exit()
        return numbers
    }

    /// Reads `h`. The result is a duplicate, closed on exec, that the caller owns.
    public borrowing func readDescriptor() throws(BusFailure) -> Int32 {
        let borrowed: Int32 = try read("h", -1)
        let owned = fcntl(borrowed, F_DUPFD_CLOEXEC, 3)
        guard owned >= 0 else {
            throw BusFailure(operation: "duplicate a descriptor", subject: "of \(subject)", errno: errno)
        }
        return owned
    }

    /// Enters a container; `exit()` leaves it once all of it has been read or skipped.
    ///
    /// - Parameters:
    ///   - kind: the kind of container.
    ///   - contents: its signature without the container itself.
    /// - Returns: false at the end of the message or of the enclosing container.
    public borrowing func enter(_ kind: Container, _ contents: String) throws(BusFailure) -> Bool {
        let result = sd_bus_message_enter_container(pointer, CChar(kind.rawValue), contents)
        guard result >= 0 else { throw mismatch(kind.signature(of: contents), result) }
        return result > 0
    }

    /// Leaves the container that was entered last; all of it must have been read or skipped.
    public borrowing func exit() throws(BusFailure) {
        let result = sd_bus_message_exit_container(pointer)
        guard result >= 0 else {
            throw BusFailure(
                operation: "leave a container", subject: subject, errno: -result,
                message: "more was there than expected", isArgument: result == -EBUSY)
        }
    }

    /// Reads a container that must be there.
    ///
    /// - Parameter body: reads all of the contents from this message. What it throws is passed on (a `MethodError` as
    ///   the name and message of the failure).
    public borrowing func withEntered<Value, Failure: Error>(
        _ kind: Container, _ contents: String, _ body: () throws(Failure) -> Value
    ) throws(BusFailure) -> Value {
        guard try enter(kind, contents) else { throw mismatch(kind.signature(of: contents), 0) }
        let value: Value
        do {
            value = try body()
        } catch {
            throw BusFailure(error, from: "read a container", to: subject)
        }
        try exit()
        return value
    }

    /// Whether nothing is left to read in the message, or in the container that was entered last.
    public var atEnd: Bool { sd_bus_message_at_end(pointer, 0) != 0 }

    /// The next type, and for a container the signature of its contents. nil at the end.
    public borrowing func peek() throws(BusFailure) -> (type: Character, contents: String?)? {
        var type: CChar = 0
        var contents: UnsafePointer<CChar>?
        let result = sd_bus_message_peek_type(pointer, &type, &contents)
        guard try check(result, "read the type of the next argument", "of \(subject)") > 0 else { return nil }
        return (Character(Unicode.Scalar(UInt8(type))), contents.map { String(cString: $0) })
    }

    /// Skips complete types, such as `sa{sv}`.
    public borrowing func skip(_ types: String) throws(BusFailure) {
        let result = sd_bus_message_skip(pointer, types)
        guard result >= 0 else { throw mismatch(types, result) }
    }

    private borrowing func read(text type: Unicode.Scalar) throws(BusFailure) -> String {
        var string: UnsafePointer<CChar>?
        let result = sd_bus_message_read_basic(pointer, CChar(UInt8(ascii: type)), &string)
        guard result > 0, let string else { throw mismatch("\(type)", result) }
        return String(cString: string)
    }

    private borrowing func read<Value: BitwiseCopyable>(
        _ type: Unicode.Scalar, _ empty: Value
    ) throws(BusFailure) -> Value {
        var value = empty
        let result = sd_bus_message_read_basic(pointer, CChar(UInt8(ascii: type)), &value)
        guard result > 0 else { throw mismatch("\(type)", result) }
        return value
    }

    /// The failure of a read that returned `result`: 0 if nothing was left, otherwise a negative error number.
    borrowing func mismatch(_ expected: String, _ result: Int32) -> BusFailure {
        var type: CChar = 0
        var contents: UnsafePointer<CChar>?
        let found: String
        if sd_bus_message_peek_type(pointer, &type, &contents) > 0 {
            let kind = Container(rawValue: UInt8(type))
            let inside = contents.map { String(cString: $0) } ?? ""
            found = kind?.signature(of: inside) ?? "\(Unicode.Scalar(UInt8(type)))"
        } else {
            found = "nothing more"
        }
        return BusFailure(
            operation: "read", subject: subject, errno: result < 0 ? -result : ENODATA,
            message: "expected \(expected), found \(found)", isArgument: true)
    }
}

extension Container {
    /// The signature of the whole container.
    func signature(of contents: String) -> String {
        switch self {
        case .array: "a\(contents)"
        case .variant: contents.isEmpty ? "v" : "v of \(contents)"
        case .struct: "(\(contents))"
        case .dictEntry: "{\(contents)}"
        }
    }
}
