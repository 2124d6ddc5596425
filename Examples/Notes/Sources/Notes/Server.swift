import AppState
import Dispatch
import Glibc

/// The server to which notes are uploaded. It listens on the Unix socket that NOTES_SERVER names, and answers
/// with one byte when it has the notes. Without NOTES_SERVER, an upload does nothing.
struct Server: Sendable {
    struct Failure: Error {
        let operation: String
        let errno: Int32
    }

    private let path = getenv("NOTES_SERVER").map { String(cString: $0) }

    func upload(_ text: String) async throws {
        guard let path else { return }
        try await withCheckedThrowingContinuation { (done: CheckedContinuation<Void, any Error>) in
            DispatchQueue.global().async {
                done.resume(with: Result { try Self.send(text, to: path) })
            }
        }
    }

    private static func send(_ text: String, to path: String) throws {
        let socket = Glibc.socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        guard socket >= 0 else { throw Failure(operation: "socket", errno: errno) }
        defer { close(socket) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(socket, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard result == 0 else { throw Failure(operation: "connect", errno: errno) }
        let bytes = Array(text.utf8)
        guard write(socket, bytes, bytes.count) == bytes.count, shutdown(socket, Int32(SHUT_WR)) == 0 else {
            throw Failure(operation: "write", errno: errno)
        }
        var answer: UInt8 = 0
        guard read(socket, &answer, 1) == 1 else { throw Failure(operation: "read", errno: errno) }
    }
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
