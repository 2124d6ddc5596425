import Foundation
import Glibc
import TestSupport
import Testing

@testable import Desktop

/// Which desktop entry belongs to an application, however it was started.
@Suite("Desktop entries")
struct DesktopEntryTests {
    private final class Data {
        let directory = NSTemporaryDirectory() + "entries.\(UUID().uuidString)"
        var entries: DesktopEntries

        init() throws {
            for part in ["own", "system"] {
                try FileManager.default.createDirectory(
                    atPath: "\(directory)/\(part)/applications", withIntermediateDirectories: true)
            }
            entries = DesktopEntries(directories: ["\(directory)/own", "\(directory)/system"])
        }

        deinit { try? FileManager.default.removeItem(atPath: directory) }

        func add(_ id: String, _ lines: String, _ part: String = "system") throws {
            try "[Desktop Entry]\nType=Application\n\(lines)\n[Desktop Action new]\nExec=other\n".write(
                toFile: "\(directory)/\(part)/applications/\(id).desktop", atomically: true, encoding: .utf8)
        }
    }

    @Test(
        "entries are found by id, class, end of the id and program, in this order",
        arguments: [
            ("org.xfce.mousepad", nil, "org.xfce.mousepad"), ("Mousepad", nil, "org.xfce.mousepad"),
            ("Gimp-2.10", nil, "gimp"),
            // By program only entries that name no class.
            ("", "gimp-2.10", "gimp-copy"), ("Unknown", "gimp-2.10", "gimp-copy"),
            // Two entries name this program, and one of them is not an application for users.
            ("Something", "mousepad", "org.xfce.mousepad"), ("Firefox-ESR", "firefox-esr", "firefox-esr"),
            // The class of the window says more than the program.
            ("crx_1", "chromium", "chrome-crx_1-Default"), ("Chromium", "chromium", "chromium"),
            ("Nothing", "nothing", nil), ("", nil, nil), ("twins", nil, nil), ("a/b", "../x", nil),
        ])
    func identified(_ windowClass: String, _ program: String?, _ id: String?) throws {
        let data = try Data()
        try data.add("org.xfce.mousepad", "Exec=mousepad %U")
        try data.add("org.xfce.mousepad-settings", "Exec=mousepad --preferences\nNoDisplay=true")
        try data.add("gimp", "Exec=env A=1 /usr/bin/gimp-2.10 %U\nStartupWMClass=gimp-2.10")
        try data.add("gimp-copy", "Exec=gimp-2.10 %U")
        try data.add("firefox-esr", "Exec=/usr/lib/firefox-esr/firefox-esr %u\nStartupWMClass=Firefox-esr")
        try data.add("chromium", "Exec=/usr/bin/chromium %U\nStartupWMClass=Chromium")
        try data.add("chrome-crx_1-Default", "Exec=/usr/bin/chromium --app-id=1\nStartupWMClass=crx_1")
        try data.add("one", "Exec=one\nStartupWMClass=twins")
        try data.add("two", "Exec=two\nStartupWMClass=twins")
        #expect(data.entries.id(ofClass: windowClass, program: program) == id)
    }

    @Test("an interpreter is not an application, but the program that its entry starts is")
    func interpreter() throws {
        let data = try Data()
        try data.add("org.example.Script", "Exec=/usr/bin/python3.11 script.py")
        #expect(data.entries.id(ofClass: "Other", program: "python3.11") == nil)
        #expect(data.entries.command(of: "org.example.Script") == "python3.11")
    }

    @Test("an entry that is installed later is found, and a user's entry replaces the system's")
    func changed() throws {
        let data = try Data()
        #expect(data.entries.id(ofClass: "Editor", program: "editor") == nil)
        try data.add("org.example.Editor", "Exec=editor")
        #expect(data.entries.id(ofClass: "Editor", program: "editor") == "org.example.Editor")
        #expect(data.entries.id(ofClass: "", program: "other") == nil)
        try data.add("org.example.Editor", "Exec=other", "own")
        #expect(data.entries.id(ofClass: "", program: "other") == "org.example.Editor")
        #expect(data.entries.id(ofClass: "", program: "editor") == nil)
    }

    @Test(
        "the program that a desktop entry starts is found",
        arguments: [
            ("[Desktop Entry]\nExec=/usr/bin/foot --server %U\n", "foot"),
            ("[Desktop Action new]\nExec=other\n[Desktop Entry]\nName=x\nExec = foot\n", "foot"),
            ("[Desktop Entry]\nExec=env A=b \"/opt/some/program\" --x\n", "program"),
            ("[Desktop Entry]\nExec=/usr/bin/env A=b\n", nil), ("[Desktop Entry]\nTryExec=foot\n", nil),
            ("", nil),
            ("Exec=foot\n", nil),
        ])
    func command(_ text: String, _ command: String?) {
        #expect(DesktopEntries.command(in: KeyFile(Array(text.utf8))) == command)
    }

    @Test("entries are looked up in their directories in order")
    func entries() throws {
        let directory = NSTemporaryDirectory() + "entries.\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: directory) }
        for (place, id, command) in [("b", "org.example.App", "second"), ("a", "org.example.App", "first")] {
            let applications = "\(directory)/\(place)/applications"
            try FileManager.default.createDirectory(atPath: applications, withIntermediateDirectories: true)
            try "[Desktop Entry]\nExec=\(command)\n".write(
                toFile: "\(applications)/\(id).desktop", atomically: true, encoding: .utf8)
        }
        // Opening it would block until a writer opens it.
        mkfifo("\(directory)/a/applications/pipe.desktop", 0o600)
        var entries = DesktopEntries(directories: ["\(directory)/a", "\(directory)/b"])
        #expect(entries.command(of: "org.example.App") == "first")
        for id in [
            "pipe", "../a/applications/org.example.App", "", "missing", String(repeating: "x", count: 300),
        ] {
            #expect(entries.command(of: id) == nil)
        }
    }
}
