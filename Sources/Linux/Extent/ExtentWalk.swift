/// Finds the living children of a process piece by piece: it may have thousands, and thousands of threads.
struct Offspring {
    let parent: ProcessIdentity
    private enum Stage {
        case begin
        /// The threads to examine, the place where the threads after them are listed, the list that is being
        /// read, and the children found so far.
        case threads(ArraySlice<Int32>, next: Int?, ChildList?, [Int32])
        case candidates(ArraySlice<Int32>)
    }
    /// This many threads are listed at once: the kernel takes a microsecond or more for each.
    private static let batch = 256
    private var stage = Stage.begin
    private var found: [ProcessIdentity] = []

    init(of parent: ProcessIdentity) {
        self.parent = parent
    }

    /// Continues the search; nil: the budget is spent, call again.
    mutating func proceed(_ proc: Proc, _ budget: Budget) -> [ProcessIdentity]? {
        while true {
            switch stage {
            case .begin:
                stage = .threads([], next: 0, nil, [])
            case .threads(var threads, var next, var list, var children):
                // This prevents the array from being copied for each piece.
                stage = .begin
                var isSpent = false
                var isListed = true
                if threads.isEmpty, list == nil, let place = next {
                    guard
                        let batch = try? proc.threads(of: parent.pid, from: place, atMost: Self.batch)
                    else { return [] }
                    (threads, next) = (batch.found[...], batch.next)
                }
                while !isSpent, isListed {
                    if let open = list {
                        if !open.readOn(into: &children) { list = nil }
                    } else if let thread = threads.popFirst() {
                        switch proc.children(of: thread, in: parent.pid) {
                        case .list(let found): list = found
                        case .gone: break
                        case .unsupported: isListed = false
                        }
                    } else {
                        break
                    }
                    isSpent = budget.spend()
                }
                if !isListed {
                    // The kernel does not list children: search all processes for this parent.
                    stage = .candidates(((try? proc.processes()) ?? []).sorted()[...])
                } else if threads.isEmpty, next == nil, list == nil {
                    stage = .candidates(children[...])
                } else {
                    stage = .threads(threads, next: next, list, children)
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
        // The parent is read together with the start time: a reused id has another parent.
        guard let stat = try? proc.stat(child), stat.parent == parent.pid else { return }
        // A zombie whose last thread has ended has nothing that could be signalled.
        if stat.state == .zombie, (try? proc.state(of: stat.identity)) ?? .zombie == .zombie { return }
        found.append(stat.identity)
    }
}

/// Walks an application's processes, as in `Extent`, piece by piece, parents first.
public struct ExtentWalk {
    /// The most processes of one extent that are followed.
    public static let mostProcesses = 4096
    /// The processes that were found so far.
    public private(set) var found: [ProcessIdentity] = []
    private let main: ProcessIdentity
    private var known: Set<ProcessIdentity> = []
    private var next = 0
    private var offspring: Offspring?
    /// Children of the process before `next` that must still be examined.
    private var born: ArraySlice<ProcessIdentity> = []
    private var isDone = false

    private let limit: Int

    /// Has not examined any process yet, and finds at most `limit` processes.
    public init(from main: ProcessIdentity, limit: Int = ExtentWalk.mostProcesses) {
        self.main = main
        self.limit = limit
    }

    /// Continues the walk; true: `found` is complete. A process that is registered or forks in between may be
    /// missing or present.
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
        while next < found.count || !born.isEmpty {
            while let child = born.popFirst() {
                guard !known.contains(child) else { continue }
                guard found.count < limit else {
                    isDone = true
                    return true
                }
                known.insert(child)
                if !isForeign(child) { found.append(child) }
                if budget.spend() { return false }
            }
            guard next < found.count else { break }
            var children = offspring ?? Offspring(of: found[next])
            offspring = nil
            guard let offspring = children.proceed(proc, budget) else {
                self.offspring = children
                return false
            }
            born = offspring[...]
            next += 1
            if next < found.count || !born.isEmpty, budget.spend() { return false }
        }
        isDone = true
        return true
    }
}
