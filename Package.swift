// swift-tools-version:6.0
// docs/architecture.md lists the modules, and which of them may import which.

import PackageDescription

let settings: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
]

// A million steps of the core take minutes without optimization. With -O the core's assertions stay. scripts/test
// requests this; a package that depends on this one may not have such flags.
let coreSettings =
    Context.environment["APPSTATED_OPTIMIZED_CORE"] == nil
    ? settings : settings + [.unsafeFlags(["-O", "-assert-config", "Debug"])]

let package = Package(
    name: "appstated",
    products: [
        .library(name: "AppState", targets: ["AppState"]),
        .executable(name: "appstated", targets: ["appstated"]),
        .executable(name: "appstatectl", targets: ["appstatectl"]),
        .executable(name: "appstate-session", targets: ["appstate-session"]),
        .executable(name: "appstate-transfer", targets: ["appstate-transfer"]),
        .executable(name: "appstate-entries", targets: ["appstate-entries"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", exact: "1.8.2")
    ],
    targets: [
        .target(name: "AppStateContract", swiftSettings: settings),
        .target(name: "LifeCycle", dependencies: ["AppStateContract"], swiftSettings: coreSettings),
        .systemLibrary(
            name: "CSystemd", pkgConfig: "libsystemd", providers: [.apt(["libsystemd-dev"])]),
        .target(name: "AppStateBus", dependencies: ["CSystemd"], swiftSettings: settings),
        .systemLibrary(name: "CAppState"),
        .target(
            name: "AppState", dependencies: ["AppStateContract", "AppStateBus", "CAppState"],
            swiftSettings: settings),
        .target(name: "Systemd", dependencies: ["CSystemd"], swiftSettings: settings),
        .systemLibrary(name: "CLinux"),
        .target(name: "Linux", dependencies: ["CLinux"], swiftSettings: settings),
        .target(
            name: "Daemon",
            dependencies: ["AppStateContract", "LifeCycle", "AppStateBus", "Systemd", "Linux"],
            swiftSettings: settings),
        .executableTarget(
            name: "appstated",
            dependencies: ["AppStateContract", "AppStateBus", "Systemd", "Linux", "Daemon"],
            swiftSettings: settings),
        .systemLibrary(
            name: "CXCB", pkgConfig: "xcb-res",
            providers: [.apt(["libxcb1-dev", "libxcb-res0-dev", "libxcb-xfixes0-dev"])]),
        .systemLibrary(
            name: "CWayland", pkgConfig: "wayland-client", providers: [.apt(["libwayland-dev"])]),
        .target(name: "Windows", dependencies: ["CXCB", "CWayland", "Linux"], swiftSettings: settings),
        .target(
            name: "Desktop", dependencies: ["AppStateContract", "AppStateBus", "Linux"],
            swiftSettings: settings),
        .systemLibrary(name: "CGIO", providers: [.apt(["libglib2.0-dev"])]),
        .executableTarget(
            name: "appstate-entries", dependencies: ["AppStateContract", "CGIO"], swiftSettings: settings),
        .target(name: "SessionRules", dependencies: ["Linux"], swiftSettings: settings),
        .target(name: "Usage", dependencies: ["AppStateContract", "Linux"], swiftSettings: settings),
        .executableTarget(
            name: "appstate-session",
            dependencies: [
                "AppStateContract", "AppStateBus", "Systemd", "Linux", "Windows", "SessionRules", "Desktop",
                "Usage",
            ],
            swiftSettings: settings),
        .systemLibrary(
            name: "CCurl", providers: [.apt(["libcurl4-openssl-dev", "libssl-dev"])]),
        .executableTarget(
            name: "appstate-transfer",
            dependencies: ["AppStateContract", "AppStateBus", "Systemd", "Linux", "CCurl"],
            swiftSettings: settings),
        .executableTarget(
            name: "appstatectl",
            dependencies: [
                "AppStateContract", "AppStateBus", "Linux", "SessionRules", "Desktop", "Usage",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: settings),

        .executableTarget(
            name: "appstate-bench",
            dependencies: ["AppStateBus", "AppStateContract", "Linux", "TestSupport"],
            path: "Benchmarks", exclude: ["Pressure", "Bare", "Living"], swiftSettings: settings),
        .executableTarget(name: "appstate-bare", path: "Benchmarks/Bare", swiftSettings: settings),
        .executableTarget(
            name: "appstate-living", dependencies: ["AppState"], path: "Benchmarks/Living",
            swiftSettings: settings),
        // Scenes in which memory runs short. scripts/bench-pressure plays them in a virtual machine.
        .executableTarget(
            name: "appstate-scene", dependencies: ["Linux"], path: "Benchmarks/Pressure",
            exclude: ["round"], swiftSettings: settings),

        .target(
            name: "TestSupport", dependencies: ["AppStateContract", "AppStateBus", "Linux"],
            path: "Tests/Support", exclude: ["Scripts"], swiftSettings: settings),
        .executableTarget(
            name: "AppActor", dependencies: ["AppStateBus", "AppStateContract", "Linux"],
            path: "Tests/Actor", swiftSettings: settings),
        .executableTarget(
            name: "GateActor", dependencies: ["Desktop", "AppStateBus", "Linux"], path: "Tests/GateActor",
            swiftSettings: settings),
        .executableTarget(
            name: "WindowActor", dependencies: ["CXCB", "AppStateBus", "AppStateContract"],
            path: "Tests/WindowActor", swiftSettings: settings),
        .executableTarget(
            name: "LibraryActor", dependencies: ["AppState", "CXCB"], path: "Tests/LibraryActor",
            swiftSettings: settings),
        .executableTarget(
            name: "WaylandActor", dependencies: ["CWayland"], path: "Tests/WaylandActor",
            swiftSettings: settings),
        .testTarget(
            name: "WindowsTests",
            dependencies: [
                "Windows", "Desktop", "CXCB", "Linux", "AppStateBus", "Systemd", "AppStateContract",
                "SessionRules", "Usage",
                "TestSupport",
                "appstated", "appstate-session", "appstatectl",
                "WindowActor", "WaylandActor",
            ],
            swiftSettings: settings),
        .testTarget(
            name: "AppStateBusTests", dependencies: ["AppStateBus", "TestSupport"], swiftSettings: settings),
        .testTarget(
            name: "DesktopTests",
            dependencies: ["Desktop", "AppStateBus", "Linux", "TestSupport", "GateActor"],
            swiftSettings: settings),
        .testTarget(
            name: "AppStateTests",
            dependencies: [
                "AppState", "AppStateBus", "AppStateContract", "Linux", "TestSupport",
                "appstated", "appstate-session", "appstatectl",
                "LibraryActor", "WindowActor",
            ],
            swiftSettings: settings),
        .testTarget(
            name: "TransferTests",
            dependencies: [
                "AppStateBus", "AppStateContract", "TestSupport", "appstated", "appstate-session",
                "appstate-transfer",
                "appstatectl", "AppActor", "LibraryActor",
            ],
            path: "Tests/Transfers", exclude: ["server.py", "application.py", "trial.py"],
            swiftSettings: settings),
        .testTarget(
            name: "LinuxTests", dependencies: ["Linux", "CLinux", "TestSupport"], swiftSettings: settings),
        .testTarget(
            name: "LifeCycleTests", dependencies: ["LifeCycle", "AppStateContract", "TestSupport"],
            swiftSettings: coreSettings),
        .testTarget(
            name: "appstatectlTests",
            dependencies: [
                "AppStateBus", "AppStateContract", "Linux", "Usage", "TestSupport", "appstated",
                "appstatectl",
                "appstate-session",
            ],
            swiftSettings: settings),
        .testTarget(
            name: "DaemonTests",
            dependencies: [
                "Daemon", "AppStateBus", "Systemd", "AppStateContract", "LifeCycle", "Linux", "TestSupport",
                "appstated", "appstate-session",
                "AppActor",
            ],
            exclude: ["Scripts"], swiftSettings: settings),
    ]
)
