import Foundation
import Glibc
import TestSupport
import Testing

/// A process that serves a FUSE file system, in a mount namespace of its own.
///
/// Another process looks at the file system whenever a line is written to `asks`; `asks` is a FIFO.
final class FuseServer {
    static let isAvailable: Bool = {
        guard geteuid() == 0, access("/dev/fuse", R_OK | W_OK) == 0, ListeningApp.mayBeCopied else {
            return false
        }
        let trial = try? Child("unshare", ["--mount", "--", "mount", "--bind", "/tmp", "/tmp"])
        return (try? trial?.waitForExit()) == .exited(0)
    }()
    static let whatIsMissing: Comment = "needs /dev/fuse, and root that may mount"

    /// It answers INIT, GETATTR for its root and STATFS, and nothing else: fuse(4).
    private static let program = """
        import ctypes, os, struct, sys
        libc = ctypes.CDLL(None, use_errno=True)
        directory, asks = sys.argv[1:]
        if libc.unshare(0x20000): raise OSError(ctypes.get_errno(), "unshare")
        libc.mount(None, b"/", None, 0x44000, None)
        end = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={end},rootmode=40000,user_id=0,group_id=0".encode()
        if libc.mount(b"test", directory.encode(), b"fuse.test", 0, options):
            raise OSError(ctypes.get_errno(), "mount")
        if os.fork() == 0:
            os.close(end)
            for number, line in enumerate(open(asks), 1):
                os.statvfs(directory)
                print("answered", number, flush=True)
            os._exit(0)
        while True:
            request = os.read(end, 1 << 17)
            length, kind, number, node = struct.unpack("<IIQQ", request[:24])
            def reply(body, error=0): os.write(end, struct.pack("<IiQ", 16 + len(body), error, number) + body)
            if kind == 26:
                reply(struct.pack("<IIIIHHIIHHI", 7, 19, 65536, 0, 0, 0, 4096, 0, 0, 0, 0) + bytes(28))
                # Before this, a process that looks at the file system waits for the answer, and queues no request.
                print("serves", flush=True)
            elif kind == 3:
                attributes = (1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0)
                reply(struct.pack("<QII", 1, 0, 0) + struct.pack("<6Q10I", *attributes))
            elif kind == 17: reply(struct.pack("<QQQQQIIII", 100, 50, 50, 10, 10, 4096, 255, 4096, 0) + bytes(24))
            elif kind not in (2, 36, 42): reply(b"", -38)
        """

    let process: Child
    private let directory = NSTemporaryDirectory() + "fuse.\(UUID().uuidString)"
    private let asks: FileHandle

    init() throws {
        try FileManager.default.createDirectory(
            atPath: directory + "/mount", withIntermediateDirectories: true)
        guard mkfifo(directory + "/asks", 0o600) == 0 else { throw TestFailure("mkfifo: \(errno)") }
        process = try Child(
            ListeningApp.python, ["-c", Self.program, directory + "/mount", directory + "/asks"])
        try process.waitForLine(containing: "serves")
        asks = try #require(FileHandle(forUpdatingAtPath: directory + "/asks"))
    }

    /// Makes a process look at the file system.
    func ask() throws { try asks.write(contentsOf: Data("look\n".utf8)) }

    deinit {
        process.kill(SIGKILL)
        try? asks.close()
        try? FileManager.default.removeItem(atPath: directory)
    }
}
