import Glibc

/// The program that this process runs.
public enum OwnProgram {
    /// Runs it anew in this process, with what was handed over to it: who supervises us sees neither an end nor a start.
    /// Every other descriptor must be close-on-exec.
    ///
    /// - Returns: why it could not be.
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

    /// Its file; the one that has taken its place where it was replaced since.
    public static var path: String { (try? Proc().formerExecutable(of: getpid())) ?? link }

    /// Leads to it also when its file was replaced.
    private static let link = "/proc/self/exe"
}
