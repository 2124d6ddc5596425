import AppStateBus
import AppStateContract
import Glibc
import Linux

/// Runs appstate-entries, which is installed beside us or in `../libexec`, and reads what it prints.
enum EntryReader {
    /// - Parameter directories: where entries are.
    /// - Returns: the records, each with its fields.
    static func read(
        _ arguments: [String], in directories: [String] = DataDirectories.all
    ) throws(MethodError) -> [[String]] {
        let status: ExitStatus
        let bytes: [UInt8]
        do throws(KernelFailure) {
            (status, bytes) = try run(arguments, environment(directories))
        } catch {
            throw .failed("desktop entries cannot be read: \(error)")
        }
        let records = records(in: bytes)
        switch status {
        case .exited(0): return records
        case .exited(1):
            if let error = records.last, error.count == 2 { throw MethodError(error[0], error[1]) }
            fallthrough
        default: throw .failed("desktop entries cannot be read: appstate-entries \(status)")
        }
    }

    private static func records(in bytes: [UInt8]) -> [[String]] {
        var fields = bytes.split(separator: 0, omittingEmptySubsequences: false)[...]
        var records: [[String]] = []
        while let first = fields.popFirst(), let count = Int(String(decoding: first, as: UTF8.self)) {
            records.append(fields.prefix(count).map { String(decoding: $0, as: UTF8.self) })
            fields = fields.dropFirst(count)
        }
        return records
    }

    private static func environment(_ directories: [String]) -> [String] {
        let own = Environment.variables(of: "self").filter { !$0.name.hasPrefix("XDG_DATA_") }
        let all = [
            ("XDG_DATA_HOME", directories.first ?? "/"),
            ("XDG_DATA_DIRS", directories.dropFirst().joined(separator: ":")),
        ]
        return (own + all).map { "\($0.name)=\($0.value)" }
    }

    private static func run(
        _ arguments: [String], _ environment: [String]
    ) throws(KernelFailure) -> (ExitStatus, [UInt8]) {
        let program = try program()
        let ends = try Descriptor.pipe()
        let output = Descriptor(owning: ends.reading)
        let pid = try spawn(program, arguments, environment, writing: Descriptor(owning: ends.writing))
        var bytes: [UInt8] = []
        var part = [UInt8](repeating: 0, count: 16_384)
        while true {
            let count = Glibc.read(output.rawValue, &part, part.count)
            if count <= 0 { break }
            bytes += part.prefix(count)
        }
        var status: Int32 = 0
        waitpid(pid, &status, 0)
        return (ExitStatus(waitStatus: status), bytes)
    }

    private static func spawn(
        _ program: String, _ arguments: [String], _ environment: [String],
        writing output: consuming Descriptor
    ) throws(KernelFailure) -> Int32 {
        try Spawn.run(
            program, [program] + arguments, environment: environment, inOwnSession: false,
            streams: Spawn.Streams(input: STDIN_FILENO, output: output.rawValue, errors: STDERR_FILENO))
    }

    /// The file of the program.
    private static func program() throws(KernelFailure) -> String {
        let own = try Proc().formerExecutable(of: getpid())
        let directory = own.split(separator: "/").dropLast().map { "/\($0)" }.joined()
        let places = ["", "/../libexec"].map { "\(directory)\($0)/appstate-entries" }
        guard let program = places.first(where: { access($0, X_OK) == 0 }) else {
            throw KernelFailure(operation: "run", subject: places[0], errno: errno)
        }
        return program
    }
}
