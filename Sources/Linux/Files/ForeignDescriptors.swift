import CLinux
public import Glibc

/// Descriptors that another process has sent, which the deciding thread must not close itself.
///
/// Their sender determines how long close(2) takes: the last close of a TCP socket waits for `SO_LINGER`
/// (socket(7)); each close of a file on a FUSE file system waits for the file server, and cannot be
/// interrupted (fs/fuse/file.c, `fuse_flush`); the last close of a large memory file frees its pages.
/// libsystemd closes the descriptors of each message, so the program that uses this type must replace the C
/// library's functions by `receive` and `close`.
///
/// The number of descriptors whose close waits is limited to a quarter of what the process may open when it receives the
/// first message, and to 1,024. While it is reached, no descriptor is received, and
/// libsystemd drops each message that should have carried some.
public enum ForeignDescriptors {
    private static let table = Table()

    /// From now on, `close` lets another thread close this descriptor.
    public static func note(_ descriptor: Int32) {
        table.note(descriptor)
    }

    /// From now on, descriptors are received only from sockets that a process of this user has made: for a program that
    /// needs no others. A program that receives some can be kept from ending by a close that does not return.
    public static func refuseFromOthers() { table.isRefusing = true }

    /// recvmsg(2), which also notes the received descriptors.
    public static func receive(
        _ socket: Int32, _ message: UnsafeMutablePointer<msghdr>, _ flags: Int32
    ) -> Int {
        guard message.pointee.msg_controllen > 0 else { return clinux_recvmsg(socket, message, flags) }
        if table.isFull || table.isRefusing && isOfOthers(socket) {
            return receiveWithoutDescriptors(socket, message, flags)
        }
        let count = clinux_recvmsg(socket, message, flags)
        guard count >= 0, message.pointee.msg_controllen > 0 else { return count }
        for descriptor in sent(in: message.pointee) where !PidFD.isPidFD(descriptor) { note(descriptor) }
        return count
    }

    /// recvmsg(2) without room for descriptors: the kernel drops them. It closes a file without asking its server. For
    /// a socket it may wait for `SO_LINGER`, but not after a signal.
    private static func receiveWithoutDescriptors(
        _ socket: Int32, _ message: UnsafeMutablePointer<msghdr>, _ flags: Int32
    ) -> Int {
        let begin = Clock.monotonicMicroseconds
        // A sender that makes us wait has its next message wait. The socket stays readable.
        if let pause = table.pause, pause.socket == socket, begin < pause.until {
            errno = EAGAIN
            return -1
        }
        let control = message.pointee.msg_control
        message.pointee.msg_control = nil
        message.pointee.msg_controllen = 0
        let interruption = Interruption()
        let count = clinux_recvmsg(socket, message, flags)
        let error = errno
        interruption.cancel()
        let end = Clock.monotonicMicroseconds
        let haveDropped = message.pointee.msg_flags & Int32(MSG_CTRUNC) != 0
        table.pause =
            haveDropped && end - begin > waited ? (socket, end + min(end - begin, longestPause)) : nil
        message.pointee.msg_control = control
        // libsystemd would give the connection up.
        message.pointee.msg_flags &= ~Int32(MSG_CTRUNC)
        errno = error
        return count
    }

    /// A receive that drops descriptors and takes longer than this has probably waited; microseconds.
    private static let waited: UInt64 = 50
    /// How long a socket is not read then, in microseconds. The thread may have stood still for another reason.
    private static let longestPause: UInt64 = 5_000

    /// Whether another user has made the other end.
    private static func isOfOthers(_ socket: Int32) -> Bool { SocketPeer(of: socket)?.uid != geteuid() }

    /// Signals to the calling thread, again and again: the first may come before the thread waits. Nothing else uses
    /// this signal. Descriptors must be received by one thread only.
    private struct Interruption {
        private static let nanoseconds = 50_000
        private static let timer: Int32 = {
            // An ignored signal, as this one is by default, interrupts nothing.
            signal(SIGURG) { _ in }
            return clinux_thread_timer(SIGURG)
        }()

        init() { clinux_set_thread_timer(Self.timer, Self.nanoseconds) }

        func cancel() { clinux_set_thread_timer(Self.timer, 0) }
    }

    /// close(2); returns at once for a descriptor that was noted.
    public static func close(_ descriptor: Int32) -> Int32 {
        if table.take(descriptor) {
            table.closeLater(descriptor)
            return 0
        }
        return clinux_close(descriptor)
    }

    /// Waits until all pending descriptors are closed. execve(2) and exit(3) wait for threads that wait in
    /// the kernel.
    ///
    /// - Parameter seconds: how long to wait at most.
    /// - Returns: whether they are closed.
    public static func finish(seconds: Int) -> Bool { table.finish(seconds: seconds) }

    /// The descriptors in the control messages, as cmsg(3) describes them.
    private static func sent(in message: msghdr) -> [Int32] {
        guard let control = message.msg_control else { return [] }
        let bytes = UnsafeRawBufferPointer(start: control, count: Int(message.msg_controllen))
        let head = MemoryLayout<cmsghdr>.size
        var descriptors: [Int32] = []
        var offset = 0
        while offset + head <= bytes.count {
            let header = bytes.loadUnaligned(fromByteOffset: offset, as: cmsghdr.self)
            let length = Int(header.cmsg_len)
            guard length >= head, offset + length <= bytes.count else { break }
            // SCM_RIGHTS
            if header.cmsg_level == SOL_SOCKET, header.cmsg_type == 1 {
                for place in stride(from: offset + head, to: offset + length - 3, by: 4) {
                    descriptors.append(bytes.loadUnaligned(fromByteOffset: place, as: Int32.self))
                }
            }
            offset += (length + 7) & ~7
        }
        return descriptors
    }

    /// The noted descriptors, and the threads that close them.
    private final class Table: @unchecked Sendable {
        /// The most descriptors of a process (fs.nr_open). Only pages that are used take memory.
        private static let size = 1 << 20
        /// A thread that waits is not replaced. If all wait, descriptors stay open.
        private static let mostThreads = 16
        /// The most descriptors that may wait to be closed. The process needs others.
        private static let most = min(1_024, ResourceLimit.openFiles / 4)
        private static let stackSize = 64 << 10
        private static let idleSeconds = 1

        /// A byte for each descriptor: 1 if it is noted. The code that notes or closes a descriptor owns its
        /// byte.
        private let noted = UnsafeMutablePointer<UInt8>(OpaquePointer(calloc(size, 1)))
        private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
        private let condition = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
        /// Set before the first message arrives.
        var isRefusing = false
        /// Until when, in microseconds, a socket is not read. Only the receiving thread uses it.
        var pause: (socket: Int32, until: UInt64)?
        // Guarded by the mutex.
        private var queue: [Int32] = []
        private var threads = 0
        private var idle = 0
        private var isAwaited = false
        private let finished = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)

        init() {
            mutex.initialize(to: pthread_mutex_t())
            condition.initialize(to: pthread_cond_t())
            pthread_mutex_init(mutex, nil)
            pthread_cond_init(condition, nil)
            finished.initialize(to: pthread_cond_t())
            pthread_cond_init(finished, nil)
        }

        func note(_ descriptor: Int32) {
            guard let noted, descriptor >= 0, descriptor < Self.size else { return }
            noted[Int(descriptor)] = 1
        }

        func take(_ descriptor: Int32) -> Bool {
            guard let noted, descriptor >= 0, descriptor < Self.size, noted[Int(descriptor)] == 1 else {
                return false
            }
            noted[Int(descriptor)] = 0
            return true
        }

        func closeLater(_ descriptor: Int32) {
            pthread_mutex_lock(mutex)
            defer { pthread_mutex_unlock(mutex) }
            queue.append(descriptor)
            if queue.count <= idle {
                pthread_cond_signal(condition)
            } else if threads < Self.mostThreads,
                DetachedThread.start(stackSize: Self.stackSize, { self.run() }) == 0
            {
                threads += 1
            }
        }

        /// Whether as many descriptors wait to be closed as may.
        var isFull: Bool {
            pthread_mutex_lock(mutex)
            defer { pthread_mutex_unlock(mutex) }
            return queue.count + threads - idle >= Self.most
        }

        private var isQuiet: Bool { queue.isEmpty && threads == idle }

        func finish(seconds: Int) -> Bool {
            var end = timespec()
            clock_gettime(CLOCK_REALTIME, &end)
            end.tv_sec += seconds
            pthread_mutex_lock(mutex)
            defer { pthread_mutex_unlock(mutex) }
            isAwaited = true
            defer { isAwaited = false }
            while !isQuiet {
                if pthread_cond_timedwait(finished, mutex, &end) == ETIMEDOUT { return isQuiet }
            }
            return true
        }

        private func run() {
            _ = clinux_set_thread_name("appstate-close")
            pthread_mutex_lock(mutex)
            while let descriptor = next() {
                pthread_mutex_unlock(mutex)
                Self.close(descriptor)
                pthread_mutex_lock(mutex)
            }
            threads -= 1
            tellIfQuiet()
            pthread_mutex_unlock(mutex)
        }

        /// A sender can make this wait only by turning `SO_LINGER` on again between the two calls, which seldom
        /// succeeds.
        private static func close(_ descriptor: Int32) {
            var linger = linger(l_onoff: 0, l_linger: 0)
            setsockopt(
                descriptor, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout<Glibc.linger>.size))
            _ = clinux_close(descriptor)
        }

        private func tellIfQuiet() {
            if isAwaited, isQuiet { pthread_cond_signal(finished) }
        }

        /// nil: there was none for a while.
        private func next() -> Int32? {
            var end = timespec()
            clock_gettime(CLOCK_REALTIME, &end)
            end.tv_sec += Self.idleSeconds
            while queue.isEmpty {
                idle += 1
                tellIfQuiet()
                let result = pthread_cond_timedwait(condition, mutex, &end)
                idle -= 1
                if result == ETIMEDOUT, queue.isEmpty { return nil }
            }
            return queue.removeFirst()
        }
    }
}
