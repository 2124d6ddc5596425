import Glibc
import Linux
import TestSupport
import Testing

/// Which sandbox a process is in, according to the kernel.
@Suite("Sandbox of a process") struct SandboxTests {
    @Test("a snap's security label names it")
    func labels() {
        #expect(Sandbox.snap(ofLabel: "snap.firefox.firefox (enforce)") == "firefox")
        #expect(Sandbox.snap(ofLabel: "snap.code_2.hook.install") == "code_2")
        #expect(Sandbox.snapApplication(ofLabel: "snap.firefox.firefox (enforce)") == "firefox_firefox")
        #expect(Sandbox.snapApplication(ofLabel: "snap.code_2.hook.install") == nil)
        for label in ["unconfined", "", "snap", "snap.firefox", "system_u:system_r:snap.t:s0"] {
            #expect(Sandbox.snap(ofLabel: label) == nil, "\(label)")
        }
    }

    @Test("the outermost unit with a Flatpak's name counts")
    func units() {
        let unit = "/user.slice/user@1000.service/app.slice/app-flatpak-org.example.App-7.scope"
        #expect(Sandbox.flatpak(ofCgroup: unit) == unit)
        #expect(Sandbox.flatpak(ofCgroup: unit + "/inner/app-flatpak-other-8.scope") == unit)
        for path in ["/", "", "/app-flatpak-a", "/app-a.scope", "/my-app-flatpak-a.scope"] {
            #expect(Sandbox.flatpak(ofCgroup: path) == nil, "\(path)")
        }
    }

    @Test("another PID namespace is another sandbox", .enabled(if: getuid() == 0, "needs root"))
    func namespaces() throws {
        let proc = Proc()
        let sibling = try Child.idle()
        #expect(try proc.sandbox(of: sibling.pid) == proc.sandbox(of: getpid()))
        let outer = try Child(["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", "echo in; exec cat"])
        #expect(try outer.line() == "in")
        let inner = try #require(try proc.children(of: outer.pid).first)
        #expect(try proc.sandbox(of: outer.pid).namespace == proc.sandbox(of: getpid()).namespace)
        #expect(try proc.sandbox(of: inner).namespace != proc.sandbox(of: getpid()).namespace)
        #expect(throws: KernelFailure.self) { try proc.sandbox(of: Int32.max) }
    }
}
