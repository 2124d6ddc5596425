internal import CAppState
internal import Glibc

/// A file in memory that carries large state.
final class MemoryFile {
    /// The reason why the file could not be created or read.
    struct Failure: Error, CustomStringConvertible {
        let description: String

        init(_ operation: String) { description = "\(operation): \(String(cString: strerror(errno)))" }
    }

    let descriptor: Int32

    /// Creates a file with these bytes and seals it, so that no process can change it any longer.
    init(_ bytes: [UInt8]) throws(Failure) {
        descriptor = cappstate_memory_file()
        guard descriptor >= 0 else { throw Failure("memfd_create") }
        var written = 0
        while written < bytes.count {
            let count = bytes.withUnsafeBytes {
                pwrite(
                    descriptor, $0.baseAddress?.advanced(by: written), bytes.count - written, off_t(written))
            }
            guard count > 0 else { throw Failure("write to a memory file") }
            written += count
        }
        guard cappstate_seal(descriptor) == 0 else { throw Failure("seal a memory file") }
    }

    /// Takes over a descriptor that was received; it is closed with this object.
    init(taking descriptor: Int32) {
        self.descriptor = descriptor
    }

    deinit {
        if descriptor >= 0 { close(descriptor) }
    }

    /// The content of the file.
    func bytes() throws(Failure) -> [UInt8] {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw Failure("stat a memory file") }
        var bytes = [UInt8](repeating: 0, count: Int(status.st_size))
        var done = 0
        while done < bytes.count {
            let count = bytes.withUnsafeMutableBytes {
                pread(descriptor, $0.baseAddress?.advanced(by: done), $0.count - done, off_t(done))
            }
            guard count > 0 else { throw Failure("read a memory file") }
            done += count
        }
        return bytes
    }
}
