/// The living children of a process, found piece by piece: it may have thousands, and thousands of threads.
struct Offspring {
    let parent: ProcessIdentity
    private enum Stage {
        case begin
        case threads(ArraySlice<Int32>, Set<Int32>)
        case candidates(ArraySlice<Int32>)
    }
    private var stage = Stage.begin
    private var found: [ProcessIdentity] = []

    init(of parent: ProcessIdentity) {
        self.parent = parent
    }

    /// Looks on; nil: the budget is spent, call again.
    mutating func proceed(_ proc: Proc, _ budget: Budget) -> [ProcessIdentity]? {
        while true {
            switch stage {
            case .begin:
                guard let threads = try? proc.threads(of: parent.pid) else { return [] }
                stage = .threads(threads[...], [])
            case .threads(var threads, var children):
                // So that the set is not copied for each thread.
                stage = .begin
                var isSpent = false
                var isListed = true
                while !isSpent, isListed, let thread = threads.popFirst() {
                    isListed = proc.readChildren(of: thread, in: parent.pid, into: &children)
                    isSpent = budget.spend()
                }
                if !isListed {
                    // The kernel lists nobody's children: whoever has this parent is one.
                    stage = .candidates(((try? proc.processes()) ?? []).sorted()[...])
                } else if threads.isEmpty {
                    stage = .candidates(children.sorted()[...])
                } else {
                    stage = .threads(threads, children)
                }
                if isSpent { return nil }
            case .candidates(var candidates):
                stage = .begin
                var isSpent = false
                while !isSpent, let candidate = candidates.popFirst() {
                    take(candidate, proc)
                    isSpent = budget.spend()
                }
                stage = .candidates(candidates)
                guard candidates.isEmpty else { return nil }
                return (try? proc.identity(of: parent.pid)) == parent ? found : []
            }
        }
    }

    private mutating func take(_ child: Int32, _ proc: Proc) {
        // Its parent is read with its start time: a number that was given again has another parent.
        guard let stat = try? proc.stat(child), stat.parent == parent.pid else { return }
        // A zombie whose last thread has ended has nothing that could be signalled.
        if stat.state == .zombie, (try? proc.state(of: stat.identity)) ?? .zombie == .zombie { return }
        found.append(stat.identity)
    }
}

/// An extent (`Extent`), walked piece by piece, parents first.
public struct ExtentWalk {
    /// What was found so far.
    public private(set) var found: [ProcessIdentity] = []
    private let main: ProcessIdentity
    private var known: Set<ProcessIdentity> = []
    private var next = 0
    private var offspring: Offspring?
    private var isDone = false

    private let limit: Int

    /// Has looked at nobody yet, and finds `limit` processes at most.
    public init(from main: ProcessIdentity, limit: Int = Extent.limit) {
        self.main = main
        self.limit = limit
    }

    /// Walks on; true: `found` is whole. Whoever is registered or forks in between may be missing or there.
    public mutating func proceed(
        _ proc: Proc, _ budget: Budget, isForeign: (ProcessIdentity) -> Bool
    ) -> Bool {
        if isDone { return true }
        if known.isEmpty {
            guard (try? proc.identity(of: main.pid)) == main else {
                isDone = true
                return true
            }
            found = [main]
            known = [main]
        }
        while next < found.count {
            var children = offspring ?? Offspring(of: found[next])
            offspring = nil
            guard let born = children.proceed(proc, budget) else {
                offspring = children
                return false
            }
            next += 1
            for child in born where !known.contains(child) {
                guard found.count < limit else {
                    isDone = true
                    return true
                }
                known.insert(child)
                if !isForeign(child) { found.append(child) }
            }
            if next < found.count, budget.spend() { return false }
        }
        isDone = true
        return true
    }
}
