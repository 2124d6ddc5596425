import AppStateBus
import AppStateContract
import TestSupport
import Testing
import Windows

/// The mark of unsaved changes in window titles.
@Suite("Unsaved changes, in the session")
struct UnsavedTests {
    @Test(
        "the mark is recognised in titles as toolkits write them",
        arguments: [
            ("*Untitled Document 2 - gedit", true), ("Untitled Document 2 - gedit", false),
            ("*~/notes.txt - Mousepad", true), ("• Draft - Text Editor", true),
            ("● main.c - Visual Studio Code", true),
            ("a.txt * — Kate", true), ("a.txt  — Kate", false), ("letter.odt* - Qt Creator", true),
            ("a.txt* – Editor", true), ("a.txt*", true), ("", false), ("*", true), (" *a", true),
            ("2 * 3 = 6 - Calculator", false), ("A* search - Browser", false), ("a*-b", false),
            ("a.txt* -", false),
        ])
    func marks(title: String, isMarked: Bool) {
        #expect(ObservedWindow(number: 1, process: nil, title: title).hasUnsavedMark == isMarked, "\(title)")
    }

    @Test(
        "the daemon learns of the mark as soon as it is in the title, and a rule can disable it",
        .enabled(if: Display.isAvailable, Display.whatIsMissing),
        .enabled(if: Station.isAvailable, Station.whatIsMissing), arguments: WindowManager.present)
    func real(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let station = try Station()
        let file = try station.configureAgent("")
        try station.startAgent(["--verbose", "--config", file], environment: display.environment)
        let app = try display.app()
        let path = try station.register("org.example.Alpha", app.pid)
        let window = try app.open("Alpha")
        func wait(for expected: Bool) throws {
            try station.wait("UnsavedChanges to be \(expected)") {
                try station.property("UnsavedChanges", of: path) == .bool(expected)
            }
        }
        func name(_ title: String) throws {
            try display.run("xdotool", ["set_window", "--name", title, "\(window)"])
        }
        try wait(for: false)
        try name("*Alpha")
        try wait(for: true)
        try display.run("xdotool", ["windowminimize", "\(window)"])
        try station.wait("the window to be minimized") {
            try station.property("Minimized", of: path) == .bool(true)
        }
        try wait(for: true)
        try name("Alpha")
        try wait(for: false)
        try name("Alpha * — Editor")
        try wait(for: true)
        try station.configureAgent("[Application org.example.Alpha]\nUnsavedMark=no\n")
        try wait(for: false)
        try station.configureAgent("")
        try wait(for: true)
    }
}
