import AppStateBus
import Glibc
import Linux
import Systemd

/// The queue on the disk: a file for each transfer, written by the worker in the order of the changes.
final class Store {
    let directory: String
    let worker: Worker
    private let journal: Journal
    private var source: Source?
    /// Held while this program uses the directory: a user may have several session buses.
    private let lock: Descriptor
    private var last: UInt64 = 0
    /// How many changes are not on the disk yet.
    private(set) var pending = 0

    private static let counter = "last"
    private static let lockFile = "lock"

    init(directory: String, loop: EventLoop, journal: Journal) throws {
        self.directory = directory
        self.journal = journal
        try DurableFile.makeDirectory(directory)
        let path = "\(directory)/\(Self.lockFile)"
        lock = Descriptor(owning: open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o600))
        guard flock(lock.rawValue, LOCK_EX | LOCK_NB) == 0 else {
            throw KernelFailure(operation: "lock", subject: path, errno: errno)
        }
        worker = try Worker(name: "files")
        source = try loop.watch(worker.descriptor) { [unowned self] _ in worker.complete() }
    }

    /// The transfers that an earlier program has left, in their order.
    func load() -> [Record] {
        var found: [Record] = []
        for name in TextFile.names(inDirectory: directory) {
            guard let number = UInt64(name), String(number) == name else { continue }
            last = max(last, number)
            guard let bytes = try? WholeFile.read("\(directory)/\(name)"),
                let record = Record(number: number, bytes)
            else {
                journal.log(.warning, "\(directory)/\(name) is damaged, and not used")
                continue
            }
            found.append(record)
        }
        let counted = (try? WholeFile.read("\(directory)/\(Self.counter)")) ?? []
        last = max(last, UInt64(String(decoding: counted, as: UTF8.self)) ?? 0)
        return found.sorted { $0.number < $1.number }
    }

    /// A number that no transfer has had. Applications know transfers by it.
    func nextNumber() -> UInt64 {
        last += 1
        return last
    }

    /// Puts the record of a new transfer on the disk, and its number, which no other one gets.
    func add(_ record: Record, then: @escaping (KernelFailure?) -> Void) {
        let (directory, name, bytes) = (directory, String(record.number), record.bytes)
        change(then) { () throws(KernelFailure) in
            try DurableFile.write(Array(name.utf8), to: Self.counter, in: directory)
            try DurableFile.write(bytes, to: name, in: directory)
        }
    }

    /// Puts a record on the disk, after what was written to the file, and then calls `then` with what went wrong.
    func save(
        _ record: Record, syncing file: Int32? = nil, then: @escaping (KernelFailure?) -> Void = { _ in }
    ) {
        let (directory, name, bytes) = (directory, String(record.number), record.bytes)
        change(then) { () throws(KernelFailure) in
            if let file, fdatasync(file) != 0 {
                throw KernelFailure(operation: "fdatasync", subject: record.target, errno: errno)
            }
            try DurableFile.write(bytes, to: name, in: directory)
        }
    }

    func remove(_ record: Record) {
        let (directory, name) = (directory, String(record.number))
        change { () throws(KernelFailure) in try DurableFile.remove(name, in: directory) }
    }

    private func change(
        _ then: @escaping (KernelFailure?) -> Void = { _ in },
        _ body: @escaping @Sendable () throws(KernelFailure) -> Void
    ) {
        run {
            do throws(KernelFailure) {
                try body()
                return nil
            } catch {
                return error
            }
        } then: { [unowned self] (failure: KernelFailure?) in
            if let failure { journal.log(.warning, "the queue cannot be written: \(failure)") }
            then(failure)
        }
    }

    /// Does something else that waits for a disk, after the changes so far.
    func run<Value: Sendable>(
        _ body: @escaping @Sendable () -> Value, then: @escaping (Value) -> Void
    ) {
        pending += 1
        worker.run(body) { [unowned self] value in
            pending -= 1
            then(value)
        }
    }
}
