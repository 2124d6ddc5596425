import AppStateBus
import Glibc
import Linux

/// Memory files: those that are passed to the daemon, and the contents of those that it passes back.
enum Memory {
    /// A new memory file; nil if the argument has another type. This is the descriptor itself, because Swift 6.0.3
    /// crashes where a structure around it is taken apart.
    static func file(_ type: String, _ text: String) throws -> Descriptor? {
        switch type {
        case "memory": try make(Array(text.utf8), seals: 0xF)
        case "memory-zeros": try make([UInt8](repeating: 0, count: Int(text) ?? 0), seals: 0xF)
        // All seals but the one against writing.
        case "unsealed": try make(Array(text.utf8), seals: 0x7)
        default: nil
        }
    }

    /// fcntl(2), `F_ADD_SEALS`.
    private static func make(_ bytes: [UInt8], seals: Int32) throws -> Descriptor {
        // MFD_CLOEXEC, MFD_ALLOW_SEALING; the C library's module map lacks it.
        typealias Create = @convention(c) (UnsafePointer<CChar>, UInt32) -> Int32
        guard let create = dlsym(nil, "memfd_create").map({ unsafeBitCast($0, to: Create.self) }) else {
            throw BusFailure(operation: "find", subject: "memfd_create", errno: ENOSYS)
        }
        let file = Descriptor(owning: create("state", 3))
        guard file.rawValue >= 0, write(file.rawValue, bytes, bytes.count) == bytes.count,
            fcntl(file.rawValue, 1_033, seals) == 0
        else { throw BusFailure(operation: "make", subject: "a memory file", errno: errno) }
        return file
    }

    /// A short text as it is, and a long one as its number of bytes.
    static func text(_ bytes: [UInt8]) -> String {
        bytes.count > 4_096 ? "\(bytes.count)-bytes" : String(decoding: bytes, as: UTF8.self)
    }

    /// The same for the contents of a file. Takes over the descriptor.
    static func text(of number: Int32) throws -> String {
        let file = Descriptor(owning: number)
        var bytes: [UInt8] = []
        var piece = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = read(file.rawValue, &piece, piece.count)
            guard count >= 0 else { throw BusFailure(operation: "read", subject: "a file", errno: errno) }
            if count == 0 { return text(bytes) }
            bytes += piece[..<count]
        }
    }
}
