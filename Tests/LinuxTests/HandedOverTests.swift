import Glibc
import Testing

@testable import Linux

@Suite("HandedOver")
struct HandedOverTests {
    @Test("descriptors that belong to others are returned, and stay open")
    func others() throws {
        var ends: [Int32] = [0, 0]
        try #require(pipe(&ends) == 0)
        defer { for end in ends { close(end) } }
        var others: [(name: String, descriptor: Int32)] = [
            ("process-1-2", ends[0]), ("kernel-cpus", dup(ends[0])), ("", ends[1]),
        ]
        let handed = HandedOver(from: &others)
        #expect(handed.names == ["kernel-cpus"])
        #expect(try handed.uevents() != nil)
        #expect(others.map(\.name) == ["process-1-2", ""])
        #expect(others.map(\.descriptor) == ends)
        #expect(fcntl(ends[0], F_GETFD) >= 0)
    }

    @Test("names are valid for the service manager: FDNAME= of sd_notify(3)")
    func names() {
        var names: [String] = []
        _ = HandOver.open { name, descriptor in
            names.append(name)
            #expect(fcntl(descriptor.rawValue, F_GETFD) >= 0)
        }
        #expect(names.contains("kernel-sockets"))
        #expect(Set(names).count == names.count)
        for name in names {
            #expect(
                name.utf8.count < 256 && name.utf8.allSatisfy { $0 > 32 && $0 < 127 && $0 != 58 }, "\(name)")
        }
    }

    @Test(
        "the tracepoints of every processor are among the descriptors",
        .enabled(if: Machine.canTrace, "needs CAP_PERFMON and CAP_SYS_ADMIN in the first PID namespace"))
    func tracepoints() throws {
        var names: Set<String> = []
        let failures = HandOver.open { name, _ in names.insert(name) }
        // Where the machine's first process cannot be examined, as in a container, our own network is used.
        let rest = failures.filter { !$0.subject.hasSuffix("/ns/net") }
        #expect(rest == [])
        for cpu in try CPUList.online() { #expect(names.contains("kernel-signal.signal_generate-\(cpu)")) }
    }
}
