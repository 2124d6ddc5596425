import Foundation
import Glibc
import Testing

@testable import Linux

private let uevent: String? = {
    let path = "/sys/devices/system/cpu/cpu0/uevent"
    return getuid() == 0 && access(path, W_OK) == 0 ? path : nil
}()

/// The kernel sends these messages at our request: no CPU goes offline for them.
@Suite(
    "CPUWatch",
    .enabled(if: uevent != nil, "needs root, and a CPU whose uevent file can be written to"))
struct CPUWatchTests {
    private func send(_ action: String, _ path: String) throws {
        let file = try Descriptor.open(path, O_WRONLY)
        let bytes = Array(action.utf8)
        guard write(file.rawValue, bytes, bytes.count) == bytes.count else {
            throw Trouble("write \(action) to \(path): errno \(errno)")
        }
    }

    @Test("only a CPU that goes online is reported")
    func heard() throws {
        let watch = try CPUWatch()
        let path = try #require(uevent)
        try send("change", path)
        try send("offline", path)
        try send("online", "/sys/devices/system/memory/uevent")
        #expect(!watch.take())
        try send("online", path)
        var look = pollfd(fd: watch.descriptor, events: Int16(POLLIN), revents: 0)
        #expect(poll(&look, 1, 300_000) == 1)
        #expect(watch.take())
    }

    @Test("the socket is among the descriptors that are handed over")
    func handedOver() {
        var names: [String] = []
        _ = HandOver.open { name, _ in names.append(name) }
        #expect(names.contains("kernel-cpus"))
    }
}
