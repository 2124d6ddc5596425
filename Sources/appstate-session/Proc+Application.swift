import Linux

extension Proc {
    /// The main process of the application that a process belongs to: the first registered process among the process
    /// itself, its parent and so on. Nil: it belongs to none.
    ///
    /// - Parameter registered: the main processes of all applications.
    func application(of process: Int32, among registered: Set<Int32>) -> Int32? {
        lineage(of: process).first { registered.contains($0.pid) }?.pid
    }
}
