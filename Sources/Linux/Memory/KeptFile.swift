import Glibc

/// A small kernel file that stays open and is read repeatedly into a buffer that is allocated once: reading allocates
/// nothing, unless it fails. This is done when memory has run out.
///
/// It is for one thread at a time, and so are the types that have one.
final class KeptFile {
    let path: String
    private let file: Descriptor
    private let buffer: UnsafeMutableRawBufferPointer

    /// Opens the file; at most `capacity` bytes of it are read.
    init(_ path: String, capacity: Int) throws(KernelFailure) {
        file = try Descriptor.open(path)
        self.path = path
        buffer = .allocate(byteCount: capacity, alignment: 16)
        // Its pages are resident from now on, not only from the first read on.
        buffer.initializeMemory(as: UInt8.self, repeating: 0)
    }

    deinit {
        buffer.deallocate()
    }

    /// Owned by this value, and closed with it.
    var descriptor: Int32 { file.rawValue }

    /// The contents of the file now, as far as one pread(2) returns them; valid until the next read.
    func read() throws(KernelFailure) -> UnsafeRawBufferPointer {
        let count = pread(file.rawValue, buffer.baseAddress, buffer.count, 0)
        guard count >= 0 else { throw failure("read", errno) }
        return UnsafeRawBufferPointer(start: buffer.baseAddress, count: count)
    }

    /// The same for a file of many records, which the kernel returns a page at a time (fs/seq_file.c).
    func readWhole() throws(KernelFailure) -> UnsafeRawBufferPointer {
        guard let base = buffer.baseAddress else { preconditionFailure("a buffer without an address") }
        var filled = 0
        while filled < buffer.count {
            let count = pread(file.rawValue, base + filled, buffer.count - filled, off_t(filled))
            guard count >= 0 else { throw failure("read", errno) }
            if count == 0 { break }
            filled += count
        }
        return UnsafeRawBufferPointer(start: base, count: filled)
    }

    func failure(_ operation: String, _ number: Int32) -> KernelFailure {
        KernelFailure(operation: operation, subject: path, errno: number)
    }
}

extension UnsafeRawBufferPointer {
    /// Calls `body` with each line, without its end, until it returns false; allocates nothing.
    func forEachLine(_ body: (inout Bytes) -> Bool) {
        guard let base = baseAddress else { return }
        var start = 0
        while start < count {
            var end = count
            if let newline = memchr(base + start, 0x0A, count - start) {
                end = base.distance(to: UnsafeRawPointer(newline))
            }
            var bytes = Bytes(UnsafeRawBufferPointer(start: base + start, count: end - start))
            guard body(&bytes) else { return }
            start = end + 1
        }
    }
}

extension Bytes {
    /// Reads a number of kibibytes, as `/proc` prints sizes, and returns bytes.
    mutating func kibibytes() -> UInt64? {
        guard let value = unsigned() else { return nil }
        let (bytes, overflow) = value.multipliedReportingOverflow(by: 1024)
        return overflow ? nil : bytes
    }
}
