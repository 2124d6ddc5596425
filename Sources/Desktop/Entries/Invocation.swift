/// What is to be run: a program and its arguments.
public struct Invocation: Equatable, Sendable {
    /// The file of the program.
    public let program: String
    /// Its arguments, the first of which is what it is called by.
    public let arguments: [String]
    /// The working directory; nil: the user's home.
    public let directory: String?

    /// - Parameters:
    ///   - program: an absolute path.
    ///   - arguments: with what it is called by.
    ///   - directory: the working directory; nil: the user's home.
    public init(program: String, arguments: [String], directory: String? = nil) {
        self.program = program
        self.arguments = arguments
        self.directory = directory
    }
}
