import Glibc

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

    /// The proxy that Flatpaks talk to a bus through. To the bus it is who speaks.
    private static let flatpakProxy = "xdg-dbus-proxy"

    /// The unit of the Flatpak's instance whose proxy the process is; nil: it is none's.
    public func flatpakUnit(ofProxy pid: Int32) -> String? {
        guard (try? program(of: pid)) == Self.flatpakProxy else { return nil }
        return (try? sandbox(of: pid))?.flatpak
    }

    /// The main process of a Flatpak's instance: the topmost in its unit of those that a process in the sandbox descends
    /// from; nil: nothing runs in the sandbox, or we may not look.
    ///
    /// - Parameter unit: of the instance.
    public func mainProcess(ofFlatpak unit: String) -> ProcessIdentity? {
        guard let own = try? sandbox(of: getpid()), let processes = try? processes() else { return nil }
        for pid in processes {
            guard let sandbox = try? sandbox(of: pid), sandbox.flatpak == unit,
                sandbox.namespace != own.namespace || sandbox.namespaceDevice != own.namespaceDevice,
                let program = try? program(of: pid), program != Self.flatpakProxy
            else { continue }
            let within = lineage(of: pid).filter { (try? self.sandbox(of: $0.pid))?.flatpak == unit }
            if let main = within.last { return main }
        }
        return nil
    }
}
