import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

@testable import Windows
@testable import appstate_session

/// What applies to the script only: KWin restricts its protocol. In the same suite as the protocol, so that two KWins
/// never run at once.
extension PlasmaTests {
    @Test("script: reports of other connections are ignored; nonsense from KWin makes the observer blind")
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
        let deadline = ContinuousClock.now + .seconds(300)
        while answers.count < calls.count, ContinuousClock.now < deadline {
            var ready = [stranger.descriptor, watch.observer.descriptor].map {
                pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
            }
            poll(&ready, 2, 100)
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
