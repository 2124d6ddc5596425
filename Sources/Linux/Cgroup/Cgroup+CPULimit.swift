import Glibc

extension Cgroup {
    /// Takes the limit of processor time off (`cpu.max`), so that its processes die quickly; only its own,
    /// not those of the cgroups above, which hold others. Nobody puts it back: whoever dies needs none.
    ///
    /// Does nothing where there is none, or no cpu controller.
    public func liftCPULimit() throws(KernelFailure) {
        do throws(KernelFailure) {
            let isLimited = try readOnce("cpu.max") { !$0.take("max") }
            guard isLimited else { return }
        } catch {
            if error.errno == ENOENT { return }
            throw error
        }
        // The period stays as it is (cgroup-v2.rst, "cpu.max").
        try write("max", to: "cpu.max")
    }
}
