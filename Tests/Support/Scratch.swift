import Foundation
public import Glibc

/// A directory for one test, removed with this object.
public final class Scratch {
    public let path: String

    /// - Parameter owner: the user whose directory it is; nil: the user who runs the test.
    public init(_ name: String = "test", owner: UInt32? = nil) throws {
        var template = Array("\(NSTemporaryDirectory())\(name).XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else {
            throw TestFailure("no temporary directory: \(String(cString: strerror(errno)))")
        }
        path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        if let owner { chown(path, owner, owner) }
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    /// Writes a file, and creates the directories above it.
    @discardableResult
    public func write(_ text: String, to name: String, mode: mode_t = 0o644) throws -> String {
        let file = "\(path)/\(name)"
        try FileManager.default.createDirectory(
            atPath: (file as NSString).deletingLastPathComponent, withIntermediateDirectories: true)
        try text.write(toFile: file, atomically: false, encoding: .utf8)
        chmod(file, mode)
        return file
    }

    /// A program that does nothing.
    public func program(_ name: String) throws -> String { try write("#!/bin/sh\n", to: name, mode: 0o755) }
}
