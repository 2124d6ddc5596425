import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

@testable import Windows
@testable import appstate_session

/// KWin that has its protocol for others only, and our script in it. What is done to windows a taskbar asks for, which
/// has the protocol. In the same suite as the protocol: no two KWins at once.
extension PlasmaTests {
    @Test("script: windows with their processes, names and the focus; minimized and back")
    func scriptFocus() throws {
        let kwin = try KWin.refusing()
        let watch = try kwin.scriptWatch()
        #expect(!watch.observer.isBlind)
        #expect(watch.observer.windows == [])
        #expect(try kwin.files().allSatisfy { !$0.hasSuffix(".js") })
        let (alpha, beta) = (try kwin.app(), try kwin.app())
        _ = try alpha.open("Alpha", "The first")
        try watch.wait(for: ["Alpha focused"])
        _ = try beta.open("Beta", "The second")
        try watch.wait(for: ["Alpha", "Beta focused"])
        #expect(try watch.window("Alpha").process == alpha.pid)
        #expect(try watch.window("Alpha").title == "The first")
        #expect(try watch.window("Beta").process == beta.pid)
        try beta.ask("bar activate The first")
        try watch.wait(for: ["Alpha focused", "Beta"])
        try beta.ask("bar minimize The first")
        try watch.wait(for: ["Alpha minimized", "Beta focused"])
        try beta.ask("put-away 1")
        try watch.wait(for: ["Alpha minimized", "Beta minimized"])
        try beta.ask("bar restore The first")
        try watch.wait("it is back") { $0.contains { $0.appID == "Alpha" && $0.visible } }
        try beta.ask("bar activate The second")
        try watch.wait(for: ["Alpha", "Beta focused"])
        // Two do not take the script from each other, and number windows alike.
        let other = try kwin.scriptWatch()
        #expect(Set(other.observer.windows.map(\.number)) == Set(watch.observer.windows.map(\.number)))
        try beta.ask("bar activate The first")
        for one in [watch, other] { try one.wait(for: ["Alpha focused", "Beta"]) }
    }

    @Test("script: virtual desktops, and the desktop shown")
    func scriptDesktops() throws {
        let kwin = try KWin.refusing()
        let watch = try kwin.scriptWatch()
        let app = try kwin.app()
        _ = (try app.open("Alpha", "a"), try app.open("Beta", "b"))
        try watch.wait(for: ["Alpha", "Beta focused"])
        try app.ask("plasma desktop 2")
        try watch.wait(for: ["Alpha hidden", "Beta hidden"])
        try app.ask("plasma desktop 1")
        try watch.wait(for: ["Alpha", "Beta focused"])
        try app.ask("plasma move 2 b")
        try watch.wait("one is moved") { windows in
            Set(windows.map { $0.visible ? $0.appID : "" }) == ["Alpha", ""]
        }
        try app.ask("bar activate b")
        try watch.wait(for: ["Alpha hidden", "Beta focused"])
        #expect(
            Set(try kwin.scriptWatch().observer.windows.map(\.picture))
                == Set(watch.observer.windows.map(\.picture)))
        try app.ask("plasma show-desktop 1")
        try watch.wait(for: ["Alpha hidden", "Beta hidden"])
        #expect(try kwin.scriptWatch().observer.windows.allSatisfy { !$0.visible })
        try app.ask("plasma show-desktop 0")
        try watch.wait("it is back") { $0.contains { $0.appID == "Beta" && $0.visible } }
    }

    @Test("script: closed, crashed, another name, 40 windows that take the focus in turn")
    func scriptEnds() throws {
        let kwin = try KWin.refusing()
        let watch = try kwin.scriptWatch()
        let (alpha, beta) = (try kwin.app(), try kwin.app())
        _ = (try alpha.open("Alpha", "a"), try alpha.open("Alpha", "b"), try beta.open("Gamma", "c"))
        try watch.wait("three windows") { $0.count == 3 }
        try beta.ask("bar close b")
        try watch.wait("one is closed") { Set($0.map { $0.title }) == ["a", "c"] }
        try beta.ask("name 1 Delta")
        try watch.wait(for: ["Alpha", "Delta focused"])
        alpha.process.kill(SIGKILL)
        try watch.wait(for: ["Delta focused"])
        let many = try kwin.app()
        try many.ask("open-many 40 Many")
        try watch.wait("41 windows") { $0.count == 41 }
        try beta.ask("bar-each activate window")
        try beta.ask("bar activate c")
        try watch.wait("the last has the focus") { $0.first { $0.focused }?.appID == "Delta" }
        try beta.ask("bar-each minimize window")
        try watch.wait("40 are minimized") { windows in windows.count { $0.minimized } == 40 }
        #expect(watch.observer.windows.allSatisfy { $0.process == ($0.appID == "Many" ? many : beta).pid })
        #expect(Set(watch.observer.windows.map(\.number)).count == 41)
        try beta.ask("bar-each close window")
        try watch.wait(for: ["Delta focused"])
    }

    @Test("script: Xwayland's windows are among them")
    func scriptXwayland() throws {
        let kwin = try KWin.refusing()
        let watch = try kwin.scriptWatch()
        let app = try kwin.x11App()
        // It has started the X server, which takes windows before anybody manages them.
        try app.ask("manager")
        _ = try app.open("Alpha", "The first")
        try watch.wait("the window") { $0.map { $0.appID.lowercased() } == ["alpha"] }
        #expect(watch.observer.windows.first?.process == app.pid)
        app.process.kill(SIGKILL)
        try watch.wait(for: [])
    }

    @Test("script: it ends", arguments: [SIGTERM, SIGKILL])
    func scriptEnd(_ signal: Int32) throws {
        let kwin = try KWin.refusing()
        let watch = try kwin.scriptWatch()
        let app = try kwin.app()
        _ = try app.open("Alpha")
        try watch.wait(for: ["Alpha focused"])
        try kwin.end(signal)
        try watch.waitForEnd()
    }

    @Test("script: one that is broken, none, and another display's KWin")
    func scriptBroken() throws {
        let kwin = try KWin.refusing()
        let directory = try Compositor.temporaryDirectory()
        defer { try? FileManager.default.removeItem(atPath: directory) }
        try FileManager.default.createDirectory(
            atPath: directory + "/appstated/kwin", withIntermediateDirectories: true)
        try "throw new Error('broken');\n".write(
            toFile: directory + "/appstated/kwin/windows.js", atomically: true, encoding: .utf8)
        let watch = try kwin.scriptWatch(directories: [directory])
        #expect(watch.observer.isBlind)
        #expect(watch.observer.takeNotices().count == 1)
        #expect(
            throws: ObserverFailure.unsupported(
                "our script for KWin, appstated/kwin/windows.js, is in none of /nowhere")
        ) { _ = try kwin.scriptWatch(directories: ["/nowhere"]) }
        let other = try KWin()
        #expect(
            throws: ObserverFailure.unsupported(
                "the KWin on the session bus is not the compositor at WAYLAND_DISPLAY=\(other.display)")
        ) { _ = try KWinScriptObserver(address: kwin.bus?.address ?? "", display: other.display) }
    }

    @Test("script: somebody else tells of windows; KWin tells nonsense")
    func scriptTrust() throws {
        let kwin = try KWin.refusing()
        let watch = try kwin.scriptWatch()
        let stranger = try Bus.open(address: kwin.bus?.address ?? "")
        var answers: [String: String?] = [:]
        var calls: [Slot] = []
        let list = try stranger.newDriverCall("ListNames")
        for name in try stranger.call(list).readStrings() where name.hasPrefix(":") {
            guard name != stranger.uniqueName else { continue }
            let message = try stranger.newCall(
                destination: name, path: BusNames.windowsPath, interface: BusNames.windows,
                member: "ReplaceWindows")
            try message.append("[[1,1,\"Evil\",\"\",true,false,false,true,false]]")
            calls.append(
                try stranger.callAsync(message) { answers.updateValue($0.error?.name, forKey: name) })
        }
        let deadline = ContinuousClock.now + .seconds(60)
        while answers.count < calls.count, ContinuousClock.now < deadline {
            var ready = [stranger.descriptor, watch.observer.descriptor].map {
                pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
            }
            poll(&ready, 2, 1_000)
            try watch.dispatch()
            while try stranger.process() {}
        }
        let refused = ErrorName.accessDenied.rawValue
        #expect(answers.values.allSatisfy { $0 != nil } && watch.observer.windows == [])
        let observer = try #require(answers.first { $0.value == refused }?.key)
        #expect(!watch.observer.isBlind)

        try kwin.runScript(
            """
            callDBus('\(observer)', '\(BusNames.windowsPath)', '\(BusNames.windows)', 'ReplaceWindows', '[[1]]');
            """)
        try watch.wait("nonsense") { _ in watch.observer.isBlind }
        #expect(watch.observer.takeNotices().contains { $0.contains("not understood") })
        let app = try kwin.app()
        _ = try app.open("Alpha")
        try watch.wait(for: ["Alpha focused"])
        #expect(!watch.observer.isBlind)
    }
}
