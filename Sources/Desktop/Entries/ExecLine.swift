/// The command line in an entry's `Exec`, split into arguments ("The Exec key" of the Desktop Entry Specification). The
/// arguments still contain field codes.
///
/// Like GLib, the parser accepts more than the specification allows: a quoted part within an argument, single quotes,
/// and a backslash outside of quotes, which escapes the next character. The entries that Wine writes use all of these.
struct ExecLine: Equatable {
    /// A part of an argument.
    enum Piece: Equatable {
        case text(String)
        /// `%` and this byte.
        case code(UInt8)
    }

    /// The pieces of each argument. No pieces: an empty argument in quotes.
    var arguments: [[Piece]] = []

    init(arguments: [[Piece]]) { self.arguments = arguments }

    /// - Parameters:
    ///   - exec: the value, with the escapes of the file format decoded.
    ///   - id: the id of the entry, for the failure.
    /// - Throws: `brokenExec`, `unknownFieldCode`.
    init(_ exec: String, of id: String) throws(DesktopFailure) {
        var reader = Reader(rest: Array(exec.utf8)[...])
        do throws(Broken) {
            while let argument = try reader.next() { arguments.append(argument) }
        } catch {
            switch error {
            case .quoting(let why): throw .brokenExec(id: id, exec: exec, why: why)
            case .code(let code): throw .unknownFieldCode(id: id, exec: exec, code: code)
            }
        }
    }

    private enum Broken: Error {
        case quoting(String)
        case code(String)
    }

    private struct Reader {
        var rest: ArraySlice<UInt8>
        private var pieces: [Piece] = []
        private var text: [UInt8] = []
        private var isQuoted = false

        init(rest: ArraySlice<UInt8>) { self.rest = rest }

        /// The next argument. Nil: there are no more.
        mutating func next() throws(Broken) -> [Piece]? {
            rest = rest.drop(while: Self.isBlank)
            guard !rest.isEmpty else { return nil }
            (pieces, text, isQuoted) = ([], [], false)
            while let byte = rest.popFirst(), !Self.isBlank(byte) {
                switch byte {
                case UInt8(ascii: "\""), UInt8(ascii: "'"): try quoted(until: byte)
                case UInt8(ascii: "\\"):
                    guard let next = rest.popFirst() else {
                        throw .quoting("nothing comes after its last backslash")
                    }
                    text.append(next)
                case UInt8(ascii: "%"): try code()
                default: text.append(byte)
                }
            }
            endText()
            return pieces
        }

        private mutating func quoted(until quote: UInt8) throws(Broken) {
            isQuoted = true
            while let byte = rest.popFirst() {
                if byte == quote { return }
                if byte == UInt8(ascii: "\\"), quote == UInt8(ascii: "\""), let next = rest.first,
                    Self.escaped.contains(next)
                {
                    text.append(next)
                    rest.removeFirst()
                } else if byte == UInt8(ascii: "%") {
                    try code()
                } else {
                    text.append(byte)
                }
            }
            throw .quoting("a quotation mark is not closed")
        }

        private mutating func code() throws(Broken) {
            guard let code = rest.popFirst() else { throw .code("") }
            if code == UInt8(ascii: "%") {
                text.append(code)
            } else if Self.known.contains(code) {
                endText()
                pieces.append(.code(code))
            } else if !Self.deprecated.contains(code) {
                let name = [code] + rest.prefix { $0 & 0xC0 == 0x80 }
                throw .code(String(decoding: name, as: UTF8.self))
            } else if pieces.isEmpty, text.isEmpty, !isQuoted {
                // An argument that consists only of a deprecated code is dropped, like an argument whose field is
                // empty.
                pieces.append(.code(code))
            }
        }

        private mutating func endText() {
            guard !text.isEmpty else { return }
            pieces.append(.text(String(decoding: text, as: UTF8.self)))
            text = []
        }

        private static func isBlank(_ byte: UInt8) -> Bool {
            byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") || byte == UInt8(ascii: "\n")
        }

        private static let escaped = Set("\"`$\\".utf8)
        private static let known = Set("fFuUick".utf8)
        private static let deprecated = Set("dDnNvm".utf8)
    }
}
