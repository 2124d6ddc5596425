/// A program to run, and its arguments.
public struct Invocation: Equatable, Sendable {
    /// The file of the program.
    public let program: String
    /// The arguments, beginning with `argv[0]`.
    public let arguments: [String]
    /// The working directory. Nil: the user's home.
    public let directory: String?

    /// - Parameters:
    ///   - program: an absolute path.
    ///   - arguments: the arguments, beginning with `argv[0]`.
    ///   - directory: the working directory; nil: the user's home.
    public init(program: String, arguments: [String], directory: String? = nil) {
        self.program = program
        self.arguments = arguments
        self.directory = directory
    }
}
