import AppStateBus
import Glibc
import Linux

/// A script that KWin runs once and then unloads.
final class KWinOrder {
    private let kwin: SessionPeer
    private let name: String
    private let path: String
    private let done: (_ failure: String?) -> Void
    private var call: Slot?
    /// Why the loaded script did not run.
    private var failure: String?

    /// Writes the script, which `begin()` makes KWin run.
    ///
    /// - Parameters:
    ///   - text: the script, which does its work at once.
    ///   - name: the name of the script in KWin; no other script has it.
    ///   - directory: the directory in which KWin finds the script.
    ///   - done: called once, with the failure if there is one.
    init(
        _ text: String, name: String, directory: String, kwin: SessionPeer,
        done: @escaping (_ failure: String?) -> Void
    ) throws(KernelFailure) {
        self.kwin = kwin
        self.name = name
        self.done = done
        path = "\(directory)/\(name)-\(getpid()).js"
        try WholeFile.write(text, to: path)
    }

    deinit { unlink(path) }

    /// A script that brings windows to the front, on their desktops: for KWin 5.27 and 6.
    static func activation(of windows: [UInt64]) -> String {
        each(
            of: windows,
            "window.minimized = false; workspace[isSix ? 'activeWindow' : 'activeClient'] = window;")
    }

    /// A script that minimizes windows: for KWin 5.27 and 6.
    static func minimization(of windows: [UInt64]) -> String {
        each(of: windows, "window.minimized = true;")
    }

    /// - Parameter windows: the windows, numbered as in kwin/windows.js.
    private static func each(of windows: [UInt64], _ action: String) -> String {
        """
        const isSix = typeof workspace.windowList === 'function';
        const list = isSix ? workspace.windowList() : workspace.clientList();
        for (const wanted of [\(windows.map { "\($0)" }.joined(separator: ", "))]) {
            for (const window of list) {
                const parts = /([0-9a-f]{8})-([0-9a-f]{4})/i.exec(String(window.internalId));
                if (parseInt(parts[1] + parts[2], 16) === wanted) {
                    \(action)
                }
            }
        }

        """
    }

    /// Makes KWin load the script and run it, without waiting for it. If KWin cannot be asked, `done` is called before
    /// this function returns.
    func begin() {
        ask("/Scripting", "org.kde.kwin.Scripting", "loadScript", [path, name]) { [unowned self] reply in
            guard reply.error == nil, let number = try? reply.readInt32(), number >= 0 else {
                return done(reply.error.map { "\($0)" } ?? "it does not accept the script")
            }
            // The path in KWin 6, then the path in KWin 5.
            run(at: ["/Scripting/Script\(number)", "/\(number)"])
        }
    }

    private func run(at paths: [String]) {
        guard let path = paths.first else {
            failure = "it does not run the script"
            return unload()
        }
        ask(path, "org.kde.kwin.Script", "run", []) { [unowned self] reply in
            if reply.error != nil { run(at: Array(paths.dropFirst())) } else { unload() }
        }
    }

    private func unload() {
        ask("/Scripting", "org.kde.kwin.Scripting", "unloadScript", [name]) { [unowned self] reply in
            done(failure ?? reply.error.map { "\($0)" })
        }
    }

    private func ask(
        _ object: String, _ interface: String, _ member: String, _ texts: [String],
        _ answered: @escaping (borrowing Message) -> Void
    ) {
        do throws(BusFailure) {
            let message = try kwin.bus.newCall(
                destination: kwin.connection, path: object, interface: interface, member: member)
            for text in texts { try message.append(text) }
            call = try kwin.bus.callAsync(message, handler: answered)
        } catch {
            done("\(error)")
        }
    }
}
