import Foundation
import Glibc

/// A pipe, closed on exec. Its ends are closed with this object unless they are taken.
public final class PipeEnds {
    public private(set) var read: Int32
    public private(set) var write: Int32
    /// Held while a pipe is not closed on exec yet, so that no child of another test inherits it: the module map
    /// lacks pipe2(2).
    static let spawning = NSLock()

    public init() throws {
        var ends: [Int32] = [-1, -1]
        let result = Self.spawning.withLock {
            guard pipe(&ends) == 0 else { return errno }
            return ends.contains { fcntl($0, F_SETFD, FD_CLOEXEC) < 0 } ? errno : 0
        }
        guard result == 0 else {
            throw Child.Failure(description: "no pipe: \(String(cString: strerror(result)))")
        }
        read = ends[0]
        write = ends[1]
    }

    deinit {
        if read >= 0 { close(read) }
        if write >= 0 { close(write) }
    }

    /// The read end, which the caller must close.
    public func takeRead() -> Int32 {
        defer { read = -1 }
        return read
    }

    /// The write end, which the caller must close.
    public func takeWrite() -> Int32 {
        defer { write = -1 }
        return write
    }
}
