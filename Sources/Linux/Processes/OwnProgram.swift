import Glibc

/// The program that this process runs.
public enum OwnProgram {
    /// Executes it again in this process, with the descriptors that were handed over to it: the supervisor
    /// sees neither an end nor a start. Every other descriptor must be close-on-exec.
    ///
    /// - Returns: why it failed.
    public static func executeAgain(passingOn handed: HandedOver) -> KernelFailure {
        handed.passOn()
        let path = (try? Proc().executable(of: getpid())) ?? link
        var arguments: [UnsafeMutablePointer<CChar>?] = CommandLine.arguments.map { strdup($0) }
        arguments.append(nil)
        execv(path, &arguments)
        let number = errno
        for argument in arguments { free(argument) }
        return KernelFailure(operation: "execv", subject: path, errno: number)
    }

    /// Leads to the program even if its file was replaced.
    private static let link = "/proc/self/exe"
}
