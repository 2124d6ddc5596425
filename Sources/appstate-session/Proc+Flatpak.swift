import Glibc
import Linux

extension Proc {
    /// The application for which the process runs in a Flatpak sandbox: `name` in `/.flatpak-info`
    /// (flatpak-metadata(5)); nil if it is in no sandbox.
    ///
    /// The process may write anything into the file of its sandbox, so the result is a name, not an identity.
    func flatpakApplication(of pid: Int32) -> String? {
        guard let text = try? TextFile.read("\(root)/\(pid)/root" + Self.flatpakInfo) else { return nil }
        return ConfigurationFile(text, name: Self.flatpakInfo).assignments.first { assignment in
            assignment.section == "Application" && assignment.key == "name" && !assignment.value.isEmpty
        }?.value
    }

    /// The id of the Flatpak that the process belongs to: in the name that Flatpak gives its unit, or in the sandbox; nil: it
    /// belongs to none.
    func flatpak(of pid: Int32) -> String? {
        let unit = (try? unifiedCgroup(of: pid)).flatMap { Sandbox.flatpak(ofCgroup: $0) }
        return unit.flatMap { ApplicationUnit(inPath: $0)?.application } ?? flatpakApplication(of: pid)
    }

    private static let flatpakInfo = "/.flatpak-info"

    /// The proxy through which Flatpaks use a bus. To the bus, the proxy is the sender.
    private static let flatpakProxy = "xdg-dbus-proxy"

    /// The unit of the Flatpak's instance whose proxy the process is; nil: it is no such proxy.
    func flatpakUnit(ofProxy pid: Int32) -> String? {
        guard (try? program(of: pid)) == Self.flatpakProxy else { return nil }
        return (try? sandbox(of: pid))?.flatpak
    }

    /// The main process of a Flatpak's instance: the topmost ancestor, within the unit, of a process in the sandbox;
    /// nil: nothing runs in the sandbox, or we may not inspect it.
    ///
    /// - Parameter unit: the unit of the instance.
    func mainProcess(ofFlatpak unit: String) -> ProcessIdentity? {
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
