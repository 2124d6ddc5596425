import Foundation
import Glibc

/// A directory for one test, removed with this object.
final class Scratch {
    let path: String

    init() throws {
        var template = Array("\(NSTemporaryDirectory())desktop.XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
        path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    /// Writes a file, and creates the directories above it.
    @discardableResult
    func write(_ text: String, to name: String, mode: mode_t = 0o644) throws -> String {
        let file = "\(path)/\(name)"
        try FileManager.default.createDirectory(
            atPath: (file as NSString).deletingLastPathComponent, withIntermediateDirectories: true)
        try text.write(toFile: file, atomically: false, encoding: .utf8)
        chmod(file, mode)
        return file
    }

    /// A program that does nothing.
    func program(_ name: String) throws -> String { try write("#!/bin/sh\n", to: name, mode: 0o755) }
}
