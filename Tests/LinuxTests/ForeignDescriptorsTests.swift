import Foundation
import Glibc
import TestSupport
import Testing

@testable import Linux

/// What these tests open is closed in the children of other tests, which would otherwise keep it open.
@Suite("Descriptors of other processes")
struct ForeignDescriptorsTests {
    /// Two connected sockets, and what is sent over them.
    private struct Pair: ~Copyable {
        let ends: [Int32]

        init() throws {
            var ends: [Int32] = [-1, -1]
            try #require(
                socketpair(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0)
            self.ends = ends
        }

        deinit { for end in ends { _ = Glibc.close(end) } }

        func send(_ descriptors: [Int32]) -> Int {
            withMessage(space: 16 + (descriptors.count * 4 + 7) & ~7) { message, control in
                let length = MemoryLayout<cmsghdr>.size + descriptors.count * 4
                // cmsg(3): a length, SOL_SOCKET and SCM_RIGHTS; the descriptors follow.
                control.storeBytes(of: length, as: Int.self)
                control.storeBytes(of: SOL_SOCKET, toByteOffset: 8, as: Int32.self)
                control.storeBytes(of: 1, toByteOffset: 12, as: Int32.self)
                for (index, descriptor) in descriptors.enumerated() {
                    control.storeBytes(of: descriptor, toByteOffset: 16 + index * 4, as: Int32.self)
                }
                return sendmsg(ends[0], message, 0)
            }
        }

        /// Receives one message as the daemon does; the descriptors in it.
        func receive(_ count: Int) -> [Int32] {
            withMessage(space: 512) { message, control in
                let flags = Int32(MSG_CMSG_CLOEXEC)
                guard ForeignDescriptors.receive(ends[1], message, flags) == 1 else { return [] }
                return (0..<count).map { control.load(fromByteOffset: 16 + $0 * 4, as: Int32.self) }
            }
        }

        private func withMessage<Value>(
            space: Int, _ body: (UnsafeMutablePointer<msghdr>, UnsafeMutableRawPointer) -> Value
        ) -> Value {
            let control = UnsafeMutableRawPointer.allocate(byteCount: space, alignment: 8)
            defer { control.deallocate() }
            var byte: UInt8 = 0
            return withUnsafeMutablePointer(to: &byte) { byte in
                var vector = iovec(iov_base: byte, iov_len: 1)
                return withUnsafeMutablePointer(to: &vector) { vector in
                    var message = msghdr()
                    message.msg_iov = vector
                    message.msg_iovlen = 1
                    message.msg_control = control
                    message.msg_controllen = space
                    return body(&message, control)
                }
            }
        }
    }

    /// A TCP socket whose last close(2) waits for an hour: SO_LINGER, and a peer that reads nothing.
    private static func lingering() throws -> (sender: Int32, peer: Int32) {
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        defer { _ = Glibc.close(listener) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let sender = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        let failure = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                bind(listener, address, length) | listen(listener, 1)
                    | getsockname(listener, address, &length) | connect(sender, address, length)
            }
        }
        try #require(failure == 0)
        let peer = accept(listener, nil, nil)
        _ = fcntl(peer, F_SETFD, FD_CLOEXEC)
        let bytes = [UInt8](repeating: 0, count: 1 << 16)
        while send(sender, bytes, bytes.count, Int32(MSG_DONTWAIT)) > 0 {}
        var linger = Glibc.linger(l_onoff: 1, l_linger: 3_600)
        setsockopt(sender, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout<Glibc.linger>.size))
        return (sender, peer)
    }

    private func link(of descriptor: Int32) -> String? {
        try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(descriptor)")
    }

    @Test("those that were received are closed by another thread, a pidfd at once", .timeLimit(.minutes(5)))
    func received() throws {
        let pair = try Pair()
        let pipe = try PipeEnds()
        let own = try PidFD(pid: getpid())
        let written = pipe.takeWrite()
        #expect(pair.send([written, own.rawValue]) == 1)
        _ = Glibc.close(written)
        let received = pair.receive(2)
        try #require(received.count == 2)
        #expect(ForeignDescriptors.close(received[1]) == 0)
        // Another test may have received the number since, for something else.
        #expect(eventually { link(of: received[1])?.contains("pidfd") != true })
        #expect(ForeignDescriptors.close(received[0]) == 0)
        // The end of the pipe is reached once the other thread has closed it.
        var byte: UInt8 = 0
        #expect(read(pipe.read, &byte, 1) == 0)
        // Its number may be given away again, and is not noted any more.
        #expect(ForeignDescriptors.close(-1) == -1)
    }

    @Test("closes that wait hold nothing up", .timeLimit(.minutes(5)))
    func lingers() throws {
        let sockets = try (0..<8).map { _ in try Self.lingering() }
        for socket in sockets {
            ForeignDescriptors.note(socket.sender)
            #expect(ForeignDescriptors.close(socket.sender) == 0)
        }
        let pipe = try PipeEnds()
        let written = pipe.takeWrite()
        ForeignDescriptors.note(written)
        #expect(ForeignDescriptors.close(written) == 0)
        var byte: UInt8 = 0
        #expect(read(pipe.read, &byte, 1) == 0)
        // Ends the waits.
        for socket in sockets { _ = Glibc.close(socket.peer) }
    }
}
