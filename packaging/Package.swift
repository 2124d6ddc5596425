// swift-tools-version:6.0
// The library alone, as it is installed: the same modules as in the whole package, which needs more to be built.

import PackageDescription

let settings: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
]

let package = Package(
    name: "appstated",
    products: [.library(name: "AppState", targets: ["AppState"])],
    targets: [
        .target(name: "AppStateContract", swiftSettings: settings),
        .systemLibrary(
            name: "CSystemd", pkgConfig: "libsystemd", providers: [.apt(["libsystemd-dev"])]),
        .target(name: "AppStateBus", dependencies: ["CSystemd"], swiftSettings: settings),
        .systemLibrary(name: "CAppState"),
        .target(
            name: "AppState", dependencies: ["AppStateContract", "AppStateBus", "CAppState"],
            swiftSettings: settings),
    ],
    swiftLanguageModes: [.v6]
)
