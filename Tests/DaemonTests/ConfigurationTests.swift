import AppStateContract
import Foundation
import Glibc
import LifeCycle
import Linux
import TestSupport
import Testing

@testable import Daemon

/// How the daemon reads its configuration.
@Suite("Configuration")
struct ConfigurationTests {
    private func take(_ text: String) -> Configuration {
        var configuration = Configuration()
        configuration.take(ConfigurationFile(text, name: "test.conf"))
        return configuration
    }

    private func settings(_ change: (inout Settings) -> Void) -> Settings {
        var settings = Settings()
        change(&settings)
        return settings
    }

    @Test("an empty configuration has the documented defaults")
    func defaults() {
        let configuration = take("")
        #expect(configuration.complaints == [])
        let settings = configuration.settings
        #expect(settings == Settings())
        #expect(settings.mode == .enforce)
        #expect(settings.backgroundGrace == 5_000_000)
        #expect(settings.backgroundTaskMax == 30_000_000)
        #expect(settings.backgroundTaskWarn == 6_000_000)
        #expect(settings.terminateGrace == 5_000_000)
        #expect(settings.launchTimeout == 20_000_000)
        #expect(settings.limits.applicationsPerUser == 1_024)
        #expect(settings.limits.subscribersPerUser == 64)
        #expect(settings.limits.windowsPerUser == 2_048)
        #expect(settings.limits.backgroundTasksPerUser == 256)
        #expect(settings.limits.stringBytes == 1_024)
        #expect(settings.pressure.sources == [])
        #expect(settings.pressure.warning == PressureSettings.Trigger(.some, 70_000, in: 1_000_000))
        #expect(settings.pressure.critical == PressureSettings.Trigger(.full, 700_000, in: 1_000_000))
        #expect(settings.pressure.criticalAvailable == .share(500))
        #expect(settings.pressure.killWait == 250_000)
        #expect(settings.pressure.terminateGrace == 1_000_000)
        #expect(settings.pressure.killsPerEvent == 16 && settings.pressure.thrashingLimit == 1_000)
        #expect(settings.pressure.servesLowMemoryMonitor)
    }

    @Test("every key is accepted and changes only its own setting")
    func everyKey() {
        let keys: [(String, (inout Settings) -> Void)] = [
            ("[Daemon]\nMode=observe", { $0.mode = .observe }),
            ("[LifeCycle]\nBackgroundGraceSec=1min", { $0.backgroundGrace = 60_000_000 }),
            ("[LifeCycle]\nBackgroundGraceSec=infinity", { $0.backgroundGrace = nil }),
            ("[LifeCycle]\nBackgroundTaskMaxSec=45", { $0.backgroundTaskMax = 45_000_000 }),
            ("[LifeCycle]\nBackgroundTaskMaxSec=infinity", { $0.backgroundTaskMax = nil }),
            ("[LifeCycle]\nBackgroundTaskWarnSec=500ms", { $0.backgroundTaskWarn = 500_000 }),
            ("[LifeCycle]\nTerminateGraceSec=0", { $0.terminateGrace = 0 }),
            ("[LifeCycle]\nLaunchTimeoutSec=infinity", { $0.launchTimeout = nil }),
            ("[Limits]\nApplicationsPerUser=1", { $0.limits.applicationsPerUser = 1 }),
            ("[Limits]\nSubscribersPerUser=2", { $0.limits.subscribersPerUser = 2 }),
            ("[Limits]\nWindowsPerUser=3", { $0.limits.windowsPerUser = 3 }),
            ("[Limits]\nBackgroundTasksPerUser=4", { $0.limits.backgroundTasksPerUser = 4 }),
            ("[Limits]\nStringBytes=1000000", { $0.limits.stringBytes = 1_000_000 }),
            ("[Pressure]\nSource=/a", { $0.pressure.sources = ["/a"] }),
            ("[Pressure]\nSource=/a  /b\nSource=/c", { $0.pressure.sources = ["/a", "/b", "/c"] }),
            (
                "[Pressure]\nWarning=some 150ms 2s",
                { $0.pressure.warning = PressureSettings.Trigger(.some, 150_000, in: 2_000_000) }
            ),
            (
                "[Pressure]\nWarning=full 1us 500ms",
                { $0.pressure.warning = PressureSettings.Trigger(.full, 1, in: 500_000) }
            ),
            (
                "[Pressure]\nCritical=full  10s\t10s",
                { $0.pressure.critical = PressureSettings.Trigger(.full, 10_000_000, in: 10_000_000) }
            ),
            ("[Pressure]\nCriticalAvailable=2.5%", { $0.pressure.criticalAvailable = .share(250) }),
            ("[Pressure]\nCriticalAvailable=0.01%", { $0.pressure.criticalAvailable = .share(1) }),
            ("[Pressure]\nCriticalAvailable=100%", { $0.pressure.criticalAvailable = .share(10_000) }),
            ("[Pressure]\nCriticalAvailable=4096", { $0.pressure.criticalAvailable = .bytes(4_096) }),
            ("[Pressure]\nCriticalAvailable=3K", { $0.pressure.criticalAvailable = .bytes(3 << 10) }),
            ("[Pressure]\nCriticalAvailable=256M", { $0.pressure.criticalAvailable = .bytes(256 << 20) }),
            ("[Pressure]\nCriticalAvailable=1G", { $0.pressure.criticalAvailable = .bytes(1 << 30) }),
            ("[Pressure]\nCriticalAvailable=2T", { $0.pressure.criticalAvailable = .bytes(2 << 40) }),
            ("[Pressure]\nKillWaitSec=100ms", { $0.pressure.killWait = 100_000 }),
            ("[Pressure]\nTerminateGraceSec=3", { $0.pressure.terminateGrace = 3_000_000 }),
            ("[Pressure]\nThrashingLimit=30%", { $0.pressure.thrashingLimit = 3_000 }),
            ("[Pressure]\nThrashingLimit=infinity", { $0.pressure.thrashingLimit = nil }),
            ("[Pressure]\nKillsPerEvent=1", { $0.pressure.killsPerEvent = 1 }),
            ("[Pressure]\nLowMemoryMonitor=no", { $0.pressure.servesLowMemoryMonitor = false }),
            (
                "[Application org.example.A]\nSuspension=never",
                { settings in
                    var override = Settings.Override()
                    override.suspension = .never
                    settings.applications["org.example.A"] = override
                }
            ),
            (
                "[Application org.example.A]\nReclaimable=off",
                { settings in
                    var override = Settings.Override()
                    override.reclaimable = false
                    settings.applications["org.example.A"] = override
                }
            ),
            (
                "[Application org.example.A]\nBackgroundModes=audio  location",
                { settings in
                    var override = Settings.Override()
                    override.backgroundModes = ["audio", "location"]
                    settings.applications["org.example.A"] = override
                }
            ),
        ]
        for (text, change) in keys {
            let configuration = take(text)
            #expect(configuration.settings == settings(change), "\(text)")
            #expect(configuration.settings != Settings(), "\(text)")
            #expect(configuration.complaints == [], "\(text)")
        }
    }

    @Test(
        "an invalid line is reported with file, line and key, and the default applies",
        arguments: [
            ("[Daemon]\nMode=sometimes", "test.conf:2: Mode=: \"sometimes\" is not one of enforce, observe"),
            ("[Daemon]\nColour=blue", "test.conf:2: Colour=: no such key in [Daemon]"),
            (
                "[LifeCycle]\n\nBackgroundGraceSec=soon",
                "test.conf:3: BackgroundGraceSec=: \"soon\" is not a time span"
            ),
            (
                "[LifeCycle]\nBackgroundTaskWarnSec=infinity",
                "test.conf:2: BackgroundTaskWarnSec=: \"infinity\" is not a finite time span"
            ),
            ("[LifeCycle]\nMode=observe", "test.conf:2: Mode=: no such key in [LifeCycle]"),
            (
                "[Limits]\nApplicationsPerUser=0",
                "test.conf:2: ApplicationsPerUser=: \"0\" is not a number from 1 to"
            ),
            (
                "[Limits]\nStringBytes=1000001",
                "test.conf:2: StringBytes=: \"1000001\" is not a number from 1 to 1000000"
            ),
            ("[Limits]\nColours=5", "test.conf:2: Colours=: no such key in [Limits]"),
            ("[Pressure]\nSource=/a b", "test.conf:2: Source=: \"b\" is not an absolute path"),
            ("[Pressure]\nWarning=any 70ms 1s", "test.conf:2: Warning=: \"any 70ms 1s\" is not a trigger"),
            ("[Pressure]\nWarning=some 0 1s", "test.conf:2: Warning=: \"some 0 1s\" is not a trigger"),
            (
                "[Pressure]\nCritical=full 1ms 499ms",
                "test.conf:2: Critical=: \"full 1ms 499ms\" is not a trigger"
            ),
            ("[Pressure]\nCriticalAvailable=0%", "test.conf:2: CriticalAvailable=: \"0%\" is not an amount"),
            (
                "[Pressure]\nCriticalAvailable=101%",
                "test.conf:2: CriticalAvailable=: \"101%\" is not an amount"
            ),
            ("[Pressure]\nThrashingLimit=30M", "test.conf:2: ThrashingLimit=: \"30M\" is not a limit"),
            (
                "[Pressure]\nKillWaitSec=infinity",
                "test.conf:2: KillWaitSec=: \"infinity\" is not a finite time span"
            ),
            ("[Pressure]\nKillsPerEvent=0", "test.conf:2: KillsPerEvent=: \"0\" is not a number from 1 to"),
            ("[Pressure]\nLowMemoryMonitor=so", "test.conf:2: LowMemoryMonitor=: \"so\" is not a boolean"),
            (
                "[Application org.example.A]\nSuspension=maybe",
                "test.conf:2: Suspension=: \"maybe\" is not one of"
            ),
            (
                "[Application org.example.A]\nReclaimable=perhaps",
                "test.conf:2: Reclaimable=: \"perhaps\" is not a boolean"
            ),
            (
                "[Application org.example.A]\nColour=1",
                "test.conf:2: Colour=: no such key in [Application org.exam"
            ),
            ("[Application]\nSuspension=never", "test.conf:1: [Application] is not a section"),
            ("[Application a/b]\nSuspension=never", "test.conf:1: [Application a/b] is not a section"),
            ("[daemon]\nMode=observe", "test.conf:1: [daemon] is not a section"),
            ("Mode=observe", "test.conf:1: Mode=: is outside of any section"),
        ])
    func badLines(_ text: String, _ complaint: String) {
        let configuration = take(text + "\n[LifeCycle]\nLaunchTimeoutSec=1\n")
        #expect(configuration.complaints.count == 1)
        #expect(
            configuration.complaints.first?.description.hasPrefix(complaint) == true,
            "\(configuration.complaints)")
        var expected = settings { $0.launchTimeout = 1_000_000 }
        // Who wrote that wanted a mode, and of the two this one takes nothing away.
        if text.contains("Mode=") { expected.mode = .observe }
        // The section of a bad line is there, but empty.
        expected.applications = configuration.settings.applications.filter { $0.value != Settings.Override() }
        #expect(expected.applications.isEmpty)
        var taken = configuration.settings
        taken.applications = [:]
        #expect(taken == expected)
    }

    @Test("every key in the section of a state changes that state only")
    func states() {
        let configuration = take(
            """
            [State active]
            CPUWeight=10000
            MemoryLow=12.5%
            [State inactive]
            IOWeight=1
            [State background]
            OOMScoreAdjust=-1000
            [State suspended]
            OOMScoreAdjust=1000
            """)
        #expect(configuration.complaints == [])
        var table = ResourceTable()
        table.active.cpuWeight = 10_000
        table.active.memoryLow = 1_250
        table.inactive.ioWeight = 1
        table.background.oomScoreAdjust = -1000
        table.suspended.oomScoreAdjust = 1000
        #expect(configuration.resources == table)
        #expect(configuration.settings == Settings())
        #expect(configuration.resources[.notRunning] == ResourceRow())
    }

    @Test(
        "a bad line in the section of a state is reported, and the default applies",
        arguments: [
            ("CPUWeight=0", "CPUWeight=: \"0\" is not a number from 1 to 10000"),
            ("OOMScoreAdjust=1001", "OOMScoreAdjust=: \"1001\" is not a number from -1000 to 1000"),
            ("MemoryLow=64M", "MemoryLow=: \"64M\" is not a share of the memory, up to 50%"),
            ("Colour=1", "Colour=: no such key in [State background]"),
        ])
    func badStates(_ line: String, _ complaint: String) {
        let configuration = take("[State background]\n\(line)\n")
        #expect(configuration.complaints.count == 1)
        #expect(
            configuration.complaints.first?.description.hasPrefix("test.conf:2: " + complaint) == true,
            "\(configuration.complaints)")
        #expect(configuration.resources == ResourceTable())
    }

    @Test("an empty value restores the default, and empties a list")
    func emptyValues() {
        let configuration = take(
            """
            [Daemon]
            Mode=observe
            Mode=
            [LifeCycle]
            LaunchTimeoutSec=infinity
            LaunchTimeoutSec=
            BackgroundTaskWarnSec=1
            BackgroundTaskWarnSec=
            [Limits]
            StringBytes=5
            StringBytes=
            [Pressure]
            Source=/a
            Source=
            Warning=full 1s 2s
            Warning=
            Critical=full 1s 2s
            Critical=
            CriticalAvailable=1G
            CriticalAvailable=
            KillWaitSec=1
            KillWaitSec=
            TerminateGraceSec=2
            TerminateGraceSec=
            KillsPerEvent=1
            KillsPerEvent=
            LowMemoryMonitor=no
            LowMemoryMonitor=
            [Application org.example.A]
            Suspension=never
            Suspension=
            Reclaimable=no
            Reclaimable=
            BackgroundModes=audio
            BackgroundModes=
            BackgroundModes=location
            BackgroundModes=voip
            """)
        #expect(configuration.complaints == [])
        var override = Settings.Override()
        override.backgroundModes = ["location", "voip"]
        #expect(configuration.settings == settings { $0.applications["org.example.A"] = override })
    }

    // MARK: Files

    /// A directory of the test's own.
    private final class Directory {
        let path: String

        init() throws {
            path = FileManager.default.temporaryDirectory.appendingPathComponent("conf-\(UUID())").path
            try FileManager.default.createDirectory(
                atPath: path + "/appstated.conf.d", withIntermediateDirectories: true)
        }

        deinit { try? FileManager.default.removeItem(atPath: path) }

        func write(_ name: String, _ text: String) throws {
            try text.write(toFile: "\(path)/\(name)", atomically: false, encoding: .utf8)
        }
    }

    @Test("drop-ins are read after the file, in the order of their names; the last value wins")
    func dropIns() throws {
        let directory = try Directory()
        try directory.write(
            "appstated.conf", "[LifeCycle]\nLaunchTimeoutSec=1\nTerminateGraceSec=1\n[Daemon]\nMode=observe\n"
        )
        try directory.write("appstated.conf.d/20-b.conf", "[LifeCycle]\nLaunchTimeoutSec=3\n")
        try directory.write(
            "appstated.conf.d/10-a.conf", "[LifeCycle]\nLaunchTimeoutSec=2\nTerminateGraceSec=2\n")
        try directory.write("appstated.conf.d/99-off.conf.bak", "[LifeCycle]\nLaunchTimeoutSec=9\n")
        try directory.write("other.conf", "[LifeCycle]\nLaunchTimeoutSec=9\n")
        let configuration = Configuration(reading: .directory(directory.path))
        #expect(configuration.complaints == [])
        #expect(
            configuration.settings
                == settings {
                    $0.launchTimeout = 3_000_000
                    $0.terminateGrace = 2_000_000
                    $0.mode = .observe
                })
    }

    @Test("a single named file is read without drop-ins")
    func fileAlone() throws {
        let directory = try Directory()
        try directory.write("appstated.conf", "[LifeCycle]\nLaunchTimeoutSec=1\n")
        try directory.write("appstated.conf.d/10.conf", "[LifeCycle]\nLaunchTimeoutSec=2\n")
        let configuration = Configuration(reading: .file(directory.path + "/appstated.conf"))
        #expect(configuration.settings.launchTimeout == 1_000_000)
    }

    @Test("a missing configuration is no complaint, but a missing named file is")
    func missing() throws {
        #expect(Configuration(reading: .directory("/nonexistent")).complaints == [])
        let configuration = Configuration(reading: .file("/nonexistent/appstated.conf"))
        #expect(configuration.settings == Settings())
        #expect(configuration.complaints.map(\.file) == ["/nonexistent/appstated.conf"])
        #expect(configuration.complaints.first?.description.contains("No such file") == true)
    }

    @Test("a FIFO, a directory or a device gives a complaint, and the daemon does not wait for it")
    func noFile() throws {
        let directory = try Directory()
        let fifo = directory.path + "/fifo"
        #expect(mkfifo(fifo, 0o600) == 0)
        for path in [fifo, directory.path, "/dev/zero"] {
            let configuration = Configuration(reading: .file(path))
            #expect(configuration.complaints.count == 1, "\(path)")
            #expect(configuration.settings == Settings(), "\(path)")
        }
    }
}
