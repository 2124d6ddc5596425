import CLinux
import Foundation
import Glibc
import Testing

@testable import Linux

private let canCount = DatagramCounter().open()
/// Whether an interface has the address ::1.
private let hasIPv6 =
    (try? String(contentsOfFile: "/proc/net/if_inet6", encoding: .utf8))?
    .contains(String(repeating: "0", count: 31) + "1 ") == true

/// Bytes of UDP sockets, counted by a program in the kernel.
@Suite(
    "Counting datagrams",
    .enabled(if: canCount, "needs CAP_BPF, CAP_PERFMON, and Linux 6.3 with BTF"))
struct DatagramCounterTests {
    private let counter = DatagramCounter()

    /// A socket that is connected to itself.
    private final class Loop {
        let number: Int32
        let cookie: UInt64

        init(_ family: Int32 = AF_INET) throws {
            // No child of another test may have it.
            number = socket(family, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
            guard number >= 0 else { throw Trouble("socket: \(errno)") }
            var address = sockaddr_storage()
            address.ss_family = sa_family_t(family)
            if family == AF_INET6 {
                withUnsafeMutableBytes(of: &address) { $0[23] = 1 }
            } else {
                withUnsafeMutableBytes(of: &address) { $0.copyBytes(from: [2, 0, 0, 0, 127, 0, 0, 1]) }
            }
            var length = socklen_t(family == AF_INET ? 16 : 28)
            var cookie: UInt64 = 0
            var size = socklen_t(8)
            let number = number
            let isReady = withUnsafeMutablePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    bind(number, $0, length) == 0 && getsockname(number, $0, &length) == 0
                        && connect(number, $0, length) == 0
                        // SO_COOKIE
                        && getsockopt(number, SOL_SOCKET, 57, &cookie, &size) == 0
                }
            }
            guard isReady else { throw Trouble("a socket that is connected to itself: \(errno)") }
            self.cookie = cookie
        }

        deinit { close(number) }

        func send(_ count: Int) {
            let sent = Glibc.send(number, [UInt8](repeating: 1, count: count), count, 0)
            #expect(sent == count)
        }

        func receive(_ flags: Int32 = 0) -> Int {
            var buffer = [UInt8](repeating: 0, count: 65_536)
            return recv(number, &buffer, buffer.count, flags | Int32(MSG_DONTWAIT))
        }
    }

    @Test(
        "what a socket sends and what it receives is counted, over IPv4 and IPv6",
        .enabled(if: hasIPv6, "needs IPv6"), arguments: [AF_INET, AF_INET6])
    func both(_ family: Int32) throws {
        let loop = try Loop(family)
        let count = try #require(counter.begin([loop.cookie], of: 1))
        loop.send(1_000)
        #expect(count.bytes == 1_000)
        #expect(loop.receive() == 1_000)
        #expect(count.bytes == 2_000)
        loop.send(700)
        var buffer = [UInt8](repeating: 0, count: 2_000)
        #expect(read(loop.number, &buffer, buffer.count) == 700)
        #expect(count.bytes == 3_400)
        #expect(count.rate > 0)
    }

    @Test("a small datagram counts as 256 bytes; an attempt to receive and a peek do not count")
    func least() throws {
        let loop = try Loop()
        let count = try #require(counter.begin([loop.cookie], of: 1))
        #expect(loop.receive() == -1)
        loop.send(10)
        #expect(loop.receive(Int32(MSG_PEEK)) == 10)
        #expect(count.bytes == 256)
        #expect(loop.receive() == 10)
        #expect(count.bytes == 512)
    }

    @Test("a call that sends several datagrams at once counts with all its bytes")
    func segments() throws {
        let loop = try Loop()
        let count = try #require(counter.begin([loop.cookie], of: 1))
        // UDP_SEGMENT of udp(7).
        var size: Int32 = 1_000
        try #require(setsockopt(loop.number, Int32(IPPROTO_UDP), 103, &size, 4) == 0)
        loop.send(10_000)
        #expect(count.bytes == 10_000)
        for received in 1...10 {
            #expect(loop.receive() == 1_000)
            #expect(count.bytes == UInt64(10_000 + 1_000 * received))
        }
    }

    @Test("a socket is counted only in the counts that name it, and from their beginning on")
    func others() throws {
        let (mine, other) = (try Loop(), try Loop())
        let count = try #require(counter.begin([mine.cookie], of: 1))
        for _ in 0..<100 {
            other.send(1_000)
            _ = other.receive()
        }
        #expect(count.bytes == 0)
        mine.send(1_000)
        let later = try #require(counter.begin([mine.cookie, other.cookie], of: 2))
        mine.send(500)
        other.send(300)
        #expect(count.bytes == 1_500)
        #expect(later.bytes == 800)
    }

    @Test("the programs run only while something is counted")
    func rest() throws {
        let loop = try Loop()
        #expect(!counter.isRunning)
        var first = counter.begin([loop.cookie], of: 1)
        var second = counter.begin([loop.cookie], of: 1)
        #expect(first != nil && second != nil && counter.isRunning)
        first = nil
        #expect(counter.isRunning)
        loop.send(1_000)
        #expect(second?.bytes == 1_000)
        second = nil
        #expect(!counter.isRunning)
        #expect(counter.begin([], of: 1) == nil)
        #expect(!counter.isRunning)
    }

    @Test("one user's sockets leave room for other users' sockets")
    func limits() throws {
        let loop = try Loop()
        var counts: [DatagramCount?] = []
        for first: UInt64 in [1 << 40, 2 << 40, 3 << 40] {
            counts.append(counter.begin((0..<1_000).map { first + $0 }, of: 1))
        }
        #expect(counts.map { $0 != nil } == [true, true, false])
        let count = try #require(counter.begin([loop.cookie], of: 2))
        loop.send(1_000)
        #expect(count.bytes == 1_000)
        counts = []
        #expect(counter.begin([5 << 40], of: 1) != nil)
    }

    /// Runs `body` while this thread has none of the capabilities that loading a program takes.
    private func withoutCapabilities<Value>(_ body: () throws -> Value) rethrows -> Value {
        // CAP_NET_ADMIN, CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF
        let laidDown = [12, 21, 38, 39].filter { clinux_set_effective($0, 0) == 1 }
        defer { for number in laidDown { _ = clinux_set_effective(number, 1) } }
        return try body()
    }

    @Test("programs that were handed over are used, without capabilities")
    func handed() throws {
        var given: [(name: String, descriptor: Int32)] = []
        _ = HandOver.open { name, descriptor in
            guard name.contains("datagrams") else { return }
            given.append((name, fcntl(descriptor.rawValue, F_DUPFD_CLOEXEC, 3)))
        }
        #expect(given.count == 3)
        let counter = DatagramCounter(handed: HandedOver(from: &given))
        let loop = try Loop()
        let others = DatagramCounter()
        let (own, begun) = withoutCapabilities { (others.open(), counter.begin([loop.cookie], of: 1)) }
        #expect(!own)
        #expect(others.failure?.isPermissionDenied == true)
        let count = try #require(begun)
        loop.send(1_000)
        #expect(count.bytes == 1_000)
    }

    @Test("the sockets of processes are found")
    func traffic() throws {
        let loop = try Loop()
        let traffic = NetworkTraffic(of: [getpid()], owner: getuid(), counter: counter)
        #expect(!traffic.isEmpty)
        let later = NetworkTraffic(of: [getpid()], owner: getuid())
        loop.send(1_000)
        #expect(later.rate(since: traffic) > 0)
        let other = try Child.idle()
        #expect(NetworkTraffic(of: [other.pid], owner: getuid(), counter: counter).isEmpty)
        #expect(NetworkTraffic(of: [getpid()], owner: getuid() + 1, counter: counter).isEmpty)
    }
}

/// The kernel's description of its types.
@Suite("KernelTypes")
struct KernelTypesTests {
    /// An integer, a structure of one member, and a typedef `word`.
    private static let small: [UInt8] = {
        func bytes(_ words: [UInt32]) -> [UInt8] {
            words.flatMap { word in withUnsafeBytes(of: word) { [UInt8]($0) } }
        }
        let types = bytes([
            1, 1 << 24, 4, 32,
            1, 4 << 24 | 1, 4, 1, 1, 0,
            5, 8 << 24, 1,
        ])
        let strings = [UInt8]("\0int\0word\0".utf8)
        return bytes([
            0x0001_eb9f, 24, 0, UInt32(types.count), UInt32(types.count), UInt32(strings.count),
        ]) + types + strings
    }()

    @Test("a typedef is found by its name")
    func found() throws {
        #expect(try KernelTypes(Self.small).numbers(ofTypedefs: ["word"]) == [3])
        #expect(
            failure { _ = try KernelTypes(Self.small).numbers(ofTypedefs: ["word", "int"]) }?.errno == ENOENT)
    }

    @Test("a description that is cut off or damaged is refused, or lacks the type")
    func damaged() {
        for count in Self.small.indices {
            #expect(
                failure { _ = try KernelTypes([UInt8](Self.small[..<count])).numbers(ofTypedefs: ["word"]) }
                    != nil)
        }
        for index in Self.small.indices {
            var bytes = Self.small
            bytes[index] ^= 0xff
            _ = failure { _ = try KernelTypes(bytes).numbers(ofTypedefs: ["word"]) }
        }
    }
}
