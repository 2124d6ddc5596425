public import Linux

extension Proc {
    /// The children of a process, in ascending order.
    public func children(of pid: Int32) throws -> [Int32] {
        try processes().filter { (try? stat($0))?.parent == pid }.sorted()
    }
}
