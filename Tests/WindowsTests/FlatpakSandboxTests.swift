import Foundation
import Glibc
import Linux
import TestSupport
import Testing

@testable import appstate_session

@Suite("Sandboxes of Flatpaks")
struct FlatpakSandboxTests {
    /// Whether a sandbox like Flatpak's can be made.
    private static let hasSandbox: Bool = {
        guard Programs.inPath("bwrap") != nil,
            let probe = try? Child("bwrap", ["--ro-bind", "/", "/", "--", "true"])
        else { return false }
        return (try? probe.waitForExit()) == .exited(0)
    }()

    @Test(
        "a process in a real bubblewrap sandbox is recognised",
        .enabled(if: hasSandbox, "needs bwrap, and namespaces"))
    func sandbox() throws {
        let file = NSTemporaryDirectory() + "info.\(UUID().uuidString)"
        defer { unlink(file) }
        try "[Application]\nname=org.example.App\n".write(toFile: file, atomically: true, encoding: .utf8)
        let names: [String] = ["/usr", "/lib", "/lib64", "/bin"]
        let directories = names.filter { access($0, F_OK) == 0 }
        let child = try Child(
            "sh",
            [
                "-c", "exec 3<\"$0\"; exec bwrap \"$@\"", file, "--ro-bind-data", "3", "/.flatpak-info",
                "--proc", "/proc", "--unshare-pid", "--die-with-parent",
            ] + directories.flatMap { ["--ro-bind", $0, $0] } + ["sh", "-c", "echo in; exec sleep 1000"])
        try child.waitForLine(containing: "in")
        let sandboxed = try #require(try Proc().children(of: child.pid).first)
        #expect(Proc().flatpakApplication(of: sandboxed) == "org.example.App")
        #expect(Proc().flatpakApplication(of: child.pid) == nil)
    }
}
