import Foundation
import Glibc
import Linux

/// Reads what a child writes, on a thread of its own. Otherwise a child whose output fills the pipe (64 KiB: pipe(7))
/// would wait until the test reads, and the test might wait for the child.
final class ChildOutput: @unchecked Sendable {
    /// What has happened so far.
    struct News {
        /// What it has written to standard output and standard error since the last call.
        let output: String
        let errors: String
        /// Whether more may follow.
        let isOpen: Bool
        let hasExited: Bool
    }

    /// Readable when there is something new.
    let descriptor: Int32
    private let process: PidFD
    private let bell: Int32
    private let lock = NSLock()
    // Guarded by the lock.
    private var texts: [[UInt8]] = [[], []]
    private var open = 2
    private var hasExited = false

    /// - Parameters:
    ///   - pid: a child that nobody else waits for.
    ///   - pipes: the read ends of its standard output and standard error, which this object closes.
    init(of pid: pid_t, _ pipes: [Int32]) throws {
        process = try PidFD(pid: pid)
        var ends: [Int32] = [-1, -1]
        guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
            throw Child.Failure(description: "no socket: \(String(cString: strerror(errno)))")
        }
        (descriptor, bell) = (ends[0], ends[1])
        Thread.detachNewThread { self.run(pipes) }
    }

    /// Ends the thread, although the child may still write.
    func stop() { close(descriptor) }

    /// Takes what is new, without waiting.
    func take() -> News {
        var bytes = [UInt8](repeating: 0, count: 64)
        while recv(descriptor, &bytes, bytes.count, Int32(MSG_DONTWAIT)) > 0 {}
        return lock.withLock {
            News(output: takeText(0), errors: takeText(1), isOpen: open > 0, hasExited: hasExited)
        }
    }

    /// A character whose bytes may not all be there yet stays for the next call.
    private func takeText(_ index: Int) -> String {
        let text = texts[index]
        let end = open > 0 ? (text.lastIndex { $0 < 0x80 } ?? -1) + 1 : text.count
        texts[index] = Array(text[end...])
        return String(decoding: text[..<end], as: UTF8.self)
    }

    private func run(_ pipes: [Int32]) {
        var polls = (pipes + [process.rawValue]).map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
        // Its hang-up is reported in any case.
        polls.append(pollfd(fd: bell, events: 0, revents: 0))
        // poll(2) ignores a negative descriptor.
        while polls.dropLast().contains(where: { $0.fd >= 0 }) {
            guard poll(&polls, nfds_t(polls.count), -1) > 0 else { continue }
            if polls[3].revents != 0 { break }
            for index in 0..<2 where polls[index].revents != 0 {
                if !read(polls[index].fd, index) { polls[index].fd = -1 }
            }
            if polls[2].revents != 0 {
                polls[2].fd = -1
                lock.withLock { hasExited = true }
            }
            // If the socket is full, it is readable.
            _ = send(bell, [1], 1, Int32(MSG_DONTWAIT) | Int32(MSG_NOSIGNAL))
        }
        for pipe in polls.prefix(2) where pipe.fd >= 0 { close(pipe.fd) }
        close(bell)
    }

    /// - Returns: false once the pipe has no writer.
    private func read(_ pipe: Int32, _ index: Int) -> Bool {
        var buffer = [UInt8](repeating: 0, count: 65_536)
        let count = Glibc.read(pipe, &buffer, buffer.count)
        if count < 0, errno == EINTR { return true }
        lock.withLock {
            if count > 0 { texts[index] += buffer.prefix(count) } else { open -= 1 }
        }
        if count <= 0 { close(pipe) }
        return count > 0
    }
}
