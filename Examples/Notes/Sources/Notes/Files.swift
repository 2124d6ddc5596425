import AppState
import Glibc

/// Where the notes are uploaded to, by http (PUT); nil: nowhere.
let server = getenv("NOTES_SERVER").map { String(cString: $0) }
/// The file that is uploaded.
let copy =
    (getenv("XDG_CACHE_HOME").map { String(cString: $0) }
        ?? (getenv("HOME").map { String(cString: $0) } ?? "") + "/.cache") + "/org.example.Notes.txt"

struct FileFailure: Error {
    let path: String
    let errno: Int32
}

/// Replaces the content of a file.
func write(_ text: String, to path: String) throws {
    guard let file = fopen(path, "w") else { throw FileFailure(path: path, errno: errno) }
    let isWritten = fputs(text, file) >= 0
    guard fclose(file) == 0, isWritten else { throw FileFailure(path: path, errno: errno) }
}

/// The text of the file that a file URL names; empty if it cannot be read.
func read(_ url: String) -> String {
    guard let path = FileURL.path(of: url), let file = fopen(path, "r") else { return "" }
    defer { fclose(file) }
    var bytes: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 65_536)
    while case let count = fread(&buffer, 1, buffer.count, file), count > 0 { bytes += buffer.prefix(count) }
    return String(decoding: bytes, as: UTF8.self)
}

/// Writes a line for the journal.
func log(_ line: String) {
    let bytes = Array("\(line)\n".utf8)
    _ = write(STDERR_FILENO, bytes, bytes.count)
}
