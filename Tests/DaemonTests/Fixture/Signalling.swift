import Linux

/// Signals a process, or does nothing if it has ended: another test's process may have its number by now.
func signal(_ number: Int32, to process: ProcessIdentity) {
    do throws(KernelFailure) {
        let held = try PidFD(pid: process.pid)
        guard try Proc().identity(of: process.pid) == process else { return }
        try held.send(number)
    } catch {
        // It has ended.
    }
}
