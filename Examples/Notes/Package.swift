// swift-tools-version:6.0
// A separate package, like any application: a package that depends on appstated for the library does not build it.

import PackageDescription

let package = Package(
    name: "Notes",
    dependencies: [.package(name: "appstated", path: "../..")],
    targets: [
        .systemLibrary(name: "CGTK", pkgConfig: "gtk4", providers: [.apt(["libgtk-4-dev"])]),
        .executableTarget(
            name: "Notes", dependencies: ["CGTK", .product(name: "AppState", package: "appstated")]),
    ],
    swiftLanguageModes: [.v6]
)
