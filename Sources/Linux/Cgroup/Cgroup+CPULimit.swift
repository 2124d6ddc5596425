import Glibc

extension Cgroup {
    /// What came of lifting the limit of processor time.
    public enum CPULimit: Equatable, Sendable {
        /// It is lifted. Nobody puts it back: whoever dies needs none.
        case lifted
        /// There was none, or no cpu controller.
        case none
    }

    /// Takes the limit of processor time off (`cpu.max`), so that its processes die quickly; only its own,
    /// not those of the cgroups above, which hold others.
    @discardableResult
    public func liftCPULimit() throws(KernelFailure) -> CPULimit {
        do throws(KernelFailure) {
            let isLimited = try readOnce("cpu.max") { text -> Bool? in
                var bytes = Bytes(text)
                return !bytes.take("max")
            }
            guard isLimited else { return .none }
        } catch {
            if error.errno == ENOENT { return .none }
            throw error
        }
        // The period stays as it is (cgroup-v2.rst, "cpu.max").
        try write("max", to: "cpu.max")
        return .lifted
    }
}
