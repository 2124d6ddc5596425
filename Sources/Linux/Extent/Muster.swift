/// Finds, piece by piece, who of an application's processes stands already, by whoever it was stopped.
public struct Muster {
    private var walk: ExtentWalk
    private var next = 0
    /// Those that were found to stand.
    public private(set) var standing: [ProcessIdentity] = []

    /// - Parameter main: the process that the application begins with.
    public init(of main: ProcessIdentity) { walk = ExtentWalk(from: main) }

    /// Goes on.
    ///
    /// - Parameters:
    ///   - isForeign: whether a process is an application of its own; it is not asked about the main one.
    ///   - isPassedOver: whether it does not matter if a process stands.
    /// - Returns: whether all were looked at; false: the budget is spent.
    public mutating func proceed(
        _ proc: Proc, _ budget: Budget, isForeign: (ProcessIdentity) -> Bool,
        isPassedOver: (ProcessIdentity) -> Bool
    ) -> Bool {
        guard walk.proceed(proc, budget, isForeign: isForeign) else { return false }
        while next < walk.found.count {
            let process = walk.found[next]
            if (try? proc.isStopped(process)) == true, !isPassedOver(process) { standing.append(process) }
            next += 1
            if budget.spend(), next < walk.found.count { return false }
        }
        return true
    }
}
