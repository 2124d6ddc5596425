extension Proc {
    /// The application that the process runs for in a Flatpak sandbox: `name` in `/.flatpak-info`
    /// (flatpak-metadata(5)); nil where it is in none.
    ///
    /// The file is looked at only where the kernel says that both the sandbox's root and the file are on a tmpfs, as
    /// bubblewrap makes them: whoever makes a mount namespace may mount what never answers. Whoever makes one may also
    /// say in it what they like: it is a name, not an identity.
    public func flatpakApplication(of pid: Int32) -> String? {
        var fileSystems: [String: String] = [:]
        // The last mount on a place is the one that is seen.
        try? forEachLine(pid, "mountinfo") { line in
            if let mount = Mount(mountinfo: line.text),
                ["/", Self.flatpakInfo].contains(mount.mountPoint)
            {
                fileSystems[mount.mountPoint] = mount.fileSystem
            }
            return true
        }
        guard fileSystems["/"] == "tmpfs", fileSystems[Self.flatpakInfo] == "tmpfs",
            let text = try? TextFile.read(path(pid, "root") + Self.flatpakInfo)
        else { return nil }
        return ConfigurationFile(text, name: Self.flatpakInfo).assignments.first { assignment in
            assignment.section == "Application" && assignment.key == "name" && !assignment.value.isEmpty
        }?.value
    }

    private static let flatpakInfo = "/.flatpak-info"
}
