/// The failure of a test, for example when something that it waits for does not happen.
public struct TestFailure: Error, CustomStringConvertible {
    public let description: String
    public init(_ description: String) { self.description = description }
}
