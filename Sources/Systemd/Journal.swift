import CSystemd
import Glibc

/// Logs structured entries to the journal, and one line to standard error unless that is already connected to
/// the journal.
public struct Journal: Sendable {
    /// The priorities of syslog(3).
    public enum Priority: Int32, Sendable, CaseIterable {
        case emergency, alert, critical, error, warning, notice, info, debug
    }

    /// The least priority that a program logs by default: `info`, or `debug` if SYSTEMD_LOG_LEVEL, systemd's own
    /// variable for this (systemd(1), "Environment"), says so.
    public static var environmentMinimum: Priority {
        guard let level = getenv("SYSTEMD_LOG_LEVEL") else { return .info }
        return ["debug", "7"].contains(String(cString: level)) ? .debug : .info
    }

    private let identifier: String
    private let minimum: Priority
    private let line: Int32?

    /// - Parameters:
    ///   - identifier: SYSLOG_IDENTIFIER, and the beginning of each line on standard error.
    ///   - minimum: the least priority that is logged at all.
    public init(identifier: String, minimum: Priority = .info) {
        self.init(
            identifier: identifier, minimum: minimum, errorDescriptor: STDERR_FILENO,
            journalStream: getenv("JOURNAL_STREAM").map { String(cString: $0) })
    }

    /// - Parameters:
    ///   - errorDescriptor: standard error.
    ///   - journalStream: device and inode of the journal's stream, as systemd.exec(5) describes JOURNAL_STREAM.
    init(identifier: String, minimum: Priority, errorDescriptor: Int32, journalStream: String?) {
        self.identifier = identifier
        self.minimum = minimum
        var status = stat()
        let isJournal =
            fstat(errorDescriptor, &status) == 0 && "\(status.st_dev):\(status.st_ino)" == journalStream
        line = isJournal ? nil : errorDescriptor
    }

    /// Whether messages of this priority are logged. For callers whose messages are expensive to prepare.
    public func logs(_ priority: Priority) -> Bool { priority.rawValue <= minimum.rawValue }

    /// Logs one message.
    ///
    /// - Parameters:
    ///   - priority: the importance of the message.
    ///   - message: one line, for people.
    ///   - fields: further fields, with names as in systemd.journal-fields(7): capitals, digits, underscores.
    public func log(_ priority: Priority, _ message: String, _ fields: [(String, String)] = []) {
        guard logs(priority) else { return }
        send(priority, message, fields)
        if let line, Self.hasRoom(line) {
            let bytes = Array("\(identifier): \(Self.line(message))\n".utf8)
            bytes.withUnsafeBytes { _ = write(line, $0.baseAddress, $0.count) }
        }
    }

    /// The reader of a pipe or a terminal may have stopped reading. In that case the line is lost, so that
    /// nothing has to wait. A pipe counts as writable when it has room for at least a page: pipe(7).
    private static func hasRoom(_ descriptor: Int32) -> Bool {
        var ready = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        return poll(&ready, 1, 0) == 1 && ready.revents & Int16(POLLOUT) != 0
    }

    /// Text that others supplied must not appear as a line of its own.
    private static func line(_ message: String) -> String {
        String(String.UnicodeScalarView(message.unicodeScalars.map { $0.value < 0x20 ? " " : $0 }))
    }

    /// An unreachable journal is not a reason to fail, and there is no other place to report it.
    private func send(_ priority: Priority, _ message: String, _ fields: [(String, String)]) {
        let own = [
            ("MESSAGE", message), ("PRIORITY", "\(priority.rawValue)"), ("SYSLOG_IDENTIFIER", identifier),
        ]
        let entries = (own + fields).map { Array("\($0.0)=\($0.1)".utf8) }
        let bytes = UnsafeMutableRawBufferPointer.allocate(
            byteCount: entries.reduce(0) { $0 + $1.count }, alignment: 1)
        defer { bytes.deallocate() }
        var vectors: [iovec] = []
        var offset = 0
        for entry in entries {
            let part = UnsafeMutableRawBufferPointer(rebasing: bytes[offset..<offset + entry.count])
            part.copyBytes(from: entry)
            vectors.append(iovec(iov_base: part.baseAddress, iov_len: entry.count))
            offset += entry.count
        }
        sd_journal_sendv(vectors, Int32(vectors.count))
    }
}
