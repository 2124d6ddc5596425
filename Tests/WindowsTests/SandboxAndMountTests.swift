import Foundation
import Glibc
import Linux
import TestSupport
import Testing

@testable import appstate_session

/// What the mounts of a process tell about it.
@Suite("Mounts")
struct MountTests {
    @Test("a path is on FUSE if the innermost mount above it is")
    func fuse() throws {
        let root = FileManager.default.temporaryDirectory.path + "/proc.\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: root) }
        let made = Proc(root: root)
        #expect(MountTable(made).mayHang("/"), "the list of mounts cannot be read")
        try FileManager.default.createDirectory(
            atPath: root + "/self", withIntermediateDirectories: true)
        try """
        1 0 8:1 / / rw - ext4 /dev/sda1 rw
        2 1 0:9 / /home/a/cloud rw - fuse.sshfs a: rw
        3 2 0:8 / /home/a/cloud/tmp rw - tmpfs tmpfs rw
        4 1 0:7 / /tmp/.mount_A rw - fuse.A A rw
        5 1 0:6 / /net rw - autofs a rw
        6 5 8:2 / /net/disk rw - ext4 /dev/sda2 rw
        7 1 0:5 / /srv/a rw - nfs4 a:/ rw
        8 1 0:4 / \(root)/served rw - cifs //a/b rw

        """.write(toFile: root + "/self/mountinfo", atomically: true, encoding: .utf8)
        let table = MountTable(made)
        for path in [
            "/home/a/cloud", "/home/a/cloud/x", "/tmp/.mount_A/x", "/net/x", "/srv/a", "\(root)/served/x",
        ] {
            #expect(table.mayHang(path), "\(path)")
            #expect(table.resolve(path) == nil, "\(path)")
        }
        for path in ["/", "/home/a/clouds", "/home/a/cloud/tmp/x", "/tmp/.mount_B", "/net/disk/x", "/srv"] {
            #expect(!table.mayHang(path), "\(path)")
        }
        // A symbolic link is followed without a look at what may hang.
        for (name, target) in [
            ("link", "served/x"), ("far", "\(root)/self/../link"), ("near", "self/mountinfo"),
            ("loop", "loop"),
        ] {
            #expect(symlink(target, "\(root)/\(name)") == 0)
        }
        for name in ["link", "far", "loop", "missing/x"] {
            #expect(table.resolve("\(root)/\(name)") == nil, "\(name)")
        }
        let real = try #require(table.resolve(root))
        #expect(table.resolve("\(root)/near") == "\(real)/self/mountinfo")
        #expect(table.resolve("\(root)/missing") == "\(real)/missing")
    }

    /// A made-up proc with one process, 7.
    private func flatpak(_ mounts: [String], _ text: String?) throws -> String? {
        let root = NSTemporaryDirectory() + "proc.\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: root) }
        try FileManager.default.createDirectory(atPath: root + "/7/root", withIntermediateDirectories: true)
        let lines = mounts.enumerated().map { "\($0) 1 0:\($0) / \($1) x x rw\n" }
        try lines.joined().write(toFile: root + "/7/mountinfo", atomically: true, encoding: .utf8)
        try text?.write(toFile: root + "/7/root/.flatpak-info", atomically: true, encoding: .utf8)
        return Proc(root: root).flatpakApplication(of: 7)
    }

    @Test("Flatpak's own file is read only where no other process can make the read block")
    func flatpak() throws {
        let root = "/ ro shared:1 - tmpfs"
        let file = "/.flatpak-info ro - tmpfs"
        let text = "[Application]\nname=org.example.App\nruntime=x\n[Instance]\nname=other\n"
        #expect(try flatpak([root, file], text) == "org.example.App")
        #expect(try flatpak([root], text) == nil)
        #expect(try flatpak(["/ rw - ext4", file], text) == nil)
        #expect(try flatpak([root, file, "/.flatpak-info rw - fuse.x"], text) == nil)
        #expect(try flatpak([root, file, "/ rw - fuse"], text) == nil)
        #expect(try flatpak([root, file], nil) == nil)
        for text in [
            "", "[Runtime]\nname=org.example.App\n", "name=x\n", "[Application]\nname=\n",
            "[Application\nname=x",
        ] {
            #expect(try flatpak([root, file], text) == nil, "\(text)")
        }
        #expect(Proc().flatpakApplication(of: getpid()) == nil)
        #expect(Proc().flatpakApplication(of: Int32.max) == nil)
    }

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
