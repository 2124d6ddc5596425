public import Glibc
import Linux

// These functions replace the C library's in the whole process, including libsystemd: the dynamic linker
// finds the program's own symbols first (ld.so(8)). `ForeignDescriptors` explains why.

/// recvmsg(2).
@_cdecl("recvmsg")
public func interposedRecvmsg(
    _ socket: Int32, _ message: UnsafeMutablePointer<msghdr>, _ flags: Int32
) -> Int {
    ForeignDescriptors.receive(socket, message, flags)
}

/// close(2).
@_cdecl("close")
public func interposedClose(_ descriptor: Int32) -> Int32 {
    ForeignDescriptors.close(descriptor)
}
