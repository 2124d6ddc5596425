import Glibc

extension Cgroup {
    /// Removes the limit of processor time (`cpu.max`), so that its processes die quickly. Removes only its own limit,
    /// not those of the cgroups above, which hold others. The limit is not restored, because dying processes
    /// do not need it.
    ///
    /// Does nothing if there is no limit, or no cpu controller.
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
