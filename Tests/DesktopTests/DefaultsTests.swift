import Desktop
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// Types and default applications, compared with gio(1) on the same files.
@Suite("Default applications")
struct DefaultsTests {
    /// Directories with lists and entries of every kind.
    private final class Stage {
        let scratch: Scratch
        let directories: BaseDirectories

        init() throws {
            scratch = try Scratch()
            let path = scratch.path
            directories = BaseDirectories(
                data: ["\(path)/data", "\(path)/local", "\(path)/share"],
                configuration: ["\(path)/config", "\(path)/xdg"])
            for name in ["browser", "mail", "editor", "viewer", "other", "mine", "kde", "hexer"] {
                try entry("share", name, "")
            }
            // The types of this machine, but none of its applications.
            try FileManager.default.createSymbolicLink(
                atPath: "\(path)/share/mime", withDestinationPath: "/usr/share/mime")
            try entry("share", "hidden", "Hidden=true")
            try entry("share", "uninstalled", "TryExec=no-such-program")
            try entry("share", "sub/deep", "")
            // The user's own copy of this entry opens something else.
            try entry("data", "mine", "")
            try scratch.write(
                """
                [MIME Cache]
                text/plain=mine.desktop;editor.desktop;
                image/png=viewer.desktop;other.desktop;
                image/jpeg=viewer.desktop;other.desktop;
                image/gif=other.desktop;viewer.desktop;
                x-scheme-handler/http=other.desktop;browser.desktop;
                x-scheme-handler/mailto=mail.desktop;
                application/zip=other.desktop;
                application/pdf=sub-deep.desktop;
                audio/mpeg=uninstalled.desktop;viewer.desktop;
                audio/x-wav=hidden.desktop;viewer.desktop;
                text/html=browser.desktop;
                """, to: "share/applications/mimeinfo.cache")
            try scratch.write(
                """
                [Default Applications]
                x-scheme-handler/http=none.desktop;browser.desktop
                inode/directory=other.desktop
                video/mp4=viewer.desktop

                [Added Associations]
                image/png=other.desktop;
                application/x-pdf=viewer.desktop;

                [Removed Associations]
                image/jpeg=viewer.desktop;
                """, to: "config/mimeapps.list")
            try scratch.write(
                "[Default Applications]\nvideo/mp4=kde.desktop\n[Added Associations]\nimage/gif=kde.desktop;\n",
                to: "config/kde-mimeapps.list")
            try scratch.write(
                "[Default Applications]\nimage/gif=viewer.desktop\ninode/directory=viewer.desktop\n",
                to: "xdg/mimeapps.list")
            try scratch.write(
                "[Default Applications]\naudio/flac=viewer.desktop\n", to: "local/applications/mimeapps.list")
        }

        private func entry(_ directory: String, _ name: String, _ more: String) throws {
            try scratch.write(
                "[Desktop Entry]\nType=Application\nName=\(name)\nExec=true %U\n\(more)\n",
                to: "\(directory)/applications/\(name).desktop")
        }

        func defaults(_ desktops: String?) -> ApplicationDefaults {
            ApplicationDefaults(directories, desktops: desktops)
        }

        func environment(_ desktops: String) -> [String: String?] {
            let path = scratch.path
            return [
                "XDG_DATA_HOME": "\(path)/data", "XDG_DATA_DIRS": "\(path)/local:\(path)/share",
                "XDG_CONFIG_HOME": "\(path)/config", "XDG_CONFIG_DIRS": "\(path)/xdg",
                "XDG_CURRENT_DESKTOP": desktops, "LC_ALL": "C", "HOME": path, "DBUS_SESSION_BUS_ADDRESS": nil,
                "DE": nil, "KDE_FULL_SESSION": nil, "DISPLAY": nil,
            ]
        }

        func output(_ program: String, _ arguments: [String], _ desktops: String = "") throws -> String {
            let child = try Child(program, arguments, environment: environment(desktops))
            _ = try child.waitForExit()
            return child.output
        }
    }

    private static let expected: [(type: String, entry: String?)] = [
        ("x-scheme-handler/http", "browser"), ("x-scheme-handler/mailto", "mail"),
        ("x-scheme-handler/no", nil),
        ("inode/directory", "other"), ("image/png", "other"), ("image/jpeg", "other"),
        ("image/gif", "viewer"),
        ("video/mp4", "viewer"), ("audio/flac", "viewer"), ("audio/mpeg", "viewer"), ("text/plain", "editor"),
        ("text/x-python", "editor"), ("text/html", "browser"), ("application/pdf", "viewer"),
        ("application/x-pdf", "viewer"), ("application/vnd.oasis.opendocument.text", "other"),
        ("application/x-shellscript", "editor"), ("application/octet-stream", nil),
    ]

    @Test("lists, caches, removals and parent types give the same application as GLib")
    func types() throws {
        let stage = try Stage()
        let defaults = stage.defaults(nil)
        for (type, entry) in Self.expected {
            #expect(defaults.entry(ofType: type)?.id == entry, "\(type)")
        }
        // GLib would choose the hidden entry; the desktop entry specification says that it does not exist.
        #expect(defaults.entry(ofType: "audio/x-wav")?.id == "viewer")
        // A desktop's own list has precedence, and adds no associations.
        let kde = stage.defaults("X-None:KDE")
        #expect(kde.entry(ofType: "video/mp4")?.id == "kde")
        #expect(kde.entry(ofType: "image/gif")?.id == "viewer")
    }

    @Test(
        "gio gives the same default applications",
        .enabled(if: Programs.inPath("gio") != nil, "gio is not installed"))
    func gio() throws {
        let stage = try Stage()
        for desktops in ["", "KDE"] {
            let defaults = stage.defaults(desktops)
            for (type, _) in Self.expected {
                let first =
                    try stage.output("gio", ["mime", type], desktops).split(separator: "\n").first ?? ""
                let said = first.hasPrefix("Default application") ? first.split(separator: " ").last : nil
                let own = defaults.entry(ofType: type).map { "\($0.id).desktop" }
                #expect(own == said.map(String.init), "\(type): \(first)")
            }
        }
    }

    private static let files: [(name: String, content: String)] = [
        ("a.txt", "x"), ("A.TXT", "x"), ("a.py", "x"), ("a.tar.gz", "x"), ("a.C", "x"), ("a.c", "x"),
        ("a.html", "x"),
        ("a.png", "x"), ("Makefile", "x"), ("README", "x"), ("README.md", "x"),
        ("a.desktop", "[Desktop Entry]\n"),
        ("core", "x"), ("a.1", "x"), ("a~", "x"), ("a.odt", "x"),
        ("a.pdf", "x"),
        ("a.jpeg", "x"), ("a.mp3", "x"), ("a.sh", "x"), ("meson.build", "x"),
        ("plain", "some text\n"), ("unknown.zzz", "some text\n"), ("binary", "a\u{1}b"),
        ("script", "#!/bin/sh\necho\n"),
        ("document", "%PDF-1.5\n"), ("page", "<!DOCTYPE html><html></html>"),
        ("x.xml", "<?xml version=\"1.0\"?>"),
        ("image", "GIF89a....."), ("zip", "PK\u{3}\u{4}....."), ("python", "#!/usr/bin/env python3\n"),
        ("elf", "\u{7F}ELF\u{2}\u{1}\u{1}\0\0\0\0\0\0\0\0\0\u{2}\0>\0\u{1}\0\0\0"), ("a.ogg", "OggS"),
        ("a.gs", "x"),
        ("mail", "From: a\n"), ("diff", "--- a\n+++ b\n@@ -1 +1 @@\n"), ("caf\u{e9}.jpg", "x"),
        ("a b.flac", "x"),
    ]

    @Test(
        "files have the same types as with gio",
        .enabled(
            if: Programs.inPath("gio") != nil && access("/usr/share/mime/globs2", R_OK) == 0,
            "gio or the types' database is not installed"))
    func contents() throws {
        let stage = try Stage()
        let types = MIMETypes(stage.directories)
        for (name, content) in Self.files {
            let path = try stage.scratch.write(content, to: "files/\(name)")
            let said = try stage.output("gio", ["info", "-a", "standard::content-type", path])
            let type = said.components(separatedBy: "standard::content-type: ").last?
                .trimmingCharacters(in: .whitespacesAndNewlines)
            #expect(try types.type(ofFile: path) == type, "\(name)")
        }
        #expect(try types.type(ofFile: stage.scratch.path) == "inode/directory")
        #expect(try types.type(ofFile: "/dev/null") == "inode/chardevice")
    }

    @Test("URLs and files are opened by their scheme or type, and a failure names what has no handler")
    func urls() throws {
        let stage = try Stage()
        let defaults = stage.defaults(nil)
        let path = stage.scratch.path
        try stage.scratch.write("x", to: "a b.png")
        #expect(try defaults.entry(opening: "HTTP://example.org").id == "browser")
        #expect(try defaults.entry(opening: "file://\(path)/a%20b.png").id == "other")
        #expect(try defaults.entry(opening: "\(path)/a b.png").id == "other")
        #expect(try defaults.entry(opening: "file://\(path)").id == "other")
        #expect(throws: DesktopFailure.noHandler(what: "no:x", type: "x-scheme-handler/no")) {
            try defaults.entry(opening: "no:x")
        }
        #expect(throws: DesktopFailure.noFile(path: "\(path)/none")) {
            try defaults.entry(opening: "\(path)/none")
        }
        #expect(throws: DesktopFailure.notURL("none")) { try defaults.entry(opening: "none") }
    }
}
