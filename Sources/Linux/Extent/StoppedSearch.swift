/// Finds, piece by piece, which of an application's processes are already stopped, no matter by which
/// process.
public struct StoppedSearch {
    private var walk: ExtentWalk
    private var next = 0
    /// The processes that were found to be stopped.
    public private(set) var stopped: [ProcessIdentity] = []

    /// - Parameter main: the process that the application begins with.
    public init(of main: ProcessIdentity) { walk = ExtentWalk(from: main) }

    /// Continues the search.
    ///
    /// - Parameters:
    ///   - isForeign: whether a process is an application of its own; not called for the main process.
    ///   - isPassedOver: whether it does not matter that a process is stopped.
    /// - Returns: true: all were examined; false: the budget is spent.
    public mutating func proceed(
        _ proc: Proc, _ budget: Budget, isForeign: (ProcessIdentity) -> Bool,
        isPassedOver: (ProcessIdentity) -> Bool
    ) -> Bool {
        guard walk.proceed(proc, budget, isForeign: isForeign) else { return false }
        while next < walk.found.count {
            let process = walk.found[next]
            if (try? proc.isStopped(process)) == true, !isPassedOver(process) { stopped.append(process) }
            next += 1
            if budget.spend(), next < walk.found.count { return false }
        }
        return true
    }
}
