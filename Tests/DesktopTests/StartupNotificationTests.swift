import Desktop
import Linux
import Testing

@Suite("Startup notification")
struct StartupNotificationTests {
    private func entry(_ lines: String) throws -> DesktopEntry {
        let file = KeyFile(Array("[Desktop Entry]\nType=Application\n\(lines)\n".utf8))
        return try DesktopEntry(id: "app", path: "/app.desktop", file: file)
    }

    @Test("an id contains host, process, number and time")
    func id() {
        let own = StartupNotification(host: "my host/1.lan", pid: 12, number: 3, time: 4_294_967_295)
        #expect(own.id == "appstate-session-my-host-1.lan-12-3_TIME4294967295")
        #expect(own.time == 4_294_967_295)
        for (id, time) in [("a_TIME1_TIME2", 2), ("a", nil), ("_TIME", nil), ("a_TIMEx", nil), ("", nil)]
            as [(String, UInt32?)]
        {
            #expect(StartupNotification(id: id).time == time, "\(id)")
        }
        #expect(own.environment.map(\.name) == ["DESKTOP_STARTUP_ID", "XDG_ACTIVATION_TOKEN"])
        #expect(own.environment.allSatisfy { $0.value == own.id })
    }

    @Test("messages quote their values")
    func messages() throws {
        let own = StartupNotification(id: #"a"b\c_TIME5"#)
        let plain = try entry("Name=The \"App\"\nIcon=i c")
        #expect(
            own.beginning(of: plain, program: "/usr/bin/app", screen: 1, host: "h")
                == #"new: ID="a\"b\\c_TIME5" NAME="The \"App\"" SCREEN="1" HOSTNAME="h" BIN="app" "#
                + #"DESCRIPTION="Starting The \"App\"" APPLICATION_ID="/app.desktop" ICON="i c" TIMESTAMP="5""#
        )
        let other = StartupNotification(id: "x")
        #expect(
            try other.beginning(of: entry("StartupWMClass=App"), program: "app", screen: 0, host: "h")
                .hasSuffix(#"APPLICATION_ID="/app.desktop" WMCLASS="App""#))
        #expect(other.change(pid: 7) == #"change: ID="x" PID="7""#)
        #expect(other.end == #"remove: ID="x""#)
    }
}
