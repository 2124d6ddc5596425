import Foundation
import Linux
import Testing

@Suite("Identity of files")
struct FileIdentityTests {
    @Test("two paths to one file are equal, another file is not, and no file is none")
    func identity() throws {
        let exe = "/proc/self/exe"
        let path = try FileManager.default.destinationOfSymbolicLink(atPath: exe)
        let (running, named) = (try #require(FileIdentity(exe)), FileIdentity(path))
        #expect(running == named)
        #expect(running != FileIdentity("/proc/self/status"))
        #expect(FileIdentity("/nonexistent") == nil)
    }
}
