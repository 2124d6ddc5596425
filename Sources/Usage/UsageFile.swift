import Glibc
public import Linux

/// The file in which usage is recorded. Only its user may read it.
public enum UsageFile {
    /// Begins a recording: makes room in the file, locks it, and appends the first line.
    ///
    /// - Returns: the descriptor, which the caller closes, the size, and the time of the first recording; nil: another
    ///   process records.
    public static func begin(
        _ path: String, at now: Int64
    ) throws(KernelFailure) -> (file: Int32, size: Int, oldest: Int64)? {
        if let slash = path.lastIndex(of: "/") { try DurableFile.makeDirectory(String(path[..<slash])) }
        let file = try open(path, create: true)
        guard flock(file, LOCK_EX | LOCK_NB) == 0 else {
            close(file)
            return nil
        }
        let content: [UInt8]
        do throws(KernelFailure) {
            content = try WholeFile.read(path)
        } catch {
            close(file)
            throw error
        }
        let log = UsageLog(content)
        let oldest = log.runs.first?.start ?? now
        let isFull = content.count > UsageLog.limit * 3 / 4
        guard isFull || now - oldest > UsageLog.longestAge else {
            // What was cut off when its writer ended must not become part of a line.
            let whole = content.lastIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? 0
            ftruncate(file, off_t(whole))
            return (file, whole + append(UsageLog.Line.begin(now).text, to: file), oldest)
        }
        defer { close(file) }
        let kept = log.bounded(since: now - UsageLog.longestAge, bytes: UsageLog.limit / 2)
        let text = kept.text + UsageLog.Line.begin(now).text
        // Nobody who waits for the lock has the new file.
        try WholeFile.write(text, to: path)
        let new = try open(path, create: false)
        guard flock(new, LOCK_EX | LOCK_NB) == 0 else {
            close(new)
            return nil
        }
        return (new, text.utf8.count, kept.runs.first?.start ?? now)
    }

    private static func open(_ path: String, create: Bool) throws(KernelFailure) -> Int32 {
        let flags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0)
        let file = Glibc.open(path, flags, 0o600)
        guard file >= 0 else { throw KernelFailure(operation: "open", subject: path, errno: errno) }
        return file
    }

    private static func append(_ text: String, to file: Int32) -> Int {
        let bytes = Array(text.utf8)
        return max(0, bytes.withUnsafeBytes { Glibc.write(file, $0.baseAddress, $0.count) })
    }
}
