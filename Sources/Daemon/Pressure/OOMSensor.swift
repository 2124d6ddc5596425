import AppStateBus
import Linux

/// Remembers whom the kernel's out-of-memory killer has chosen, until their end is known.
///
/// The trace tells which process, on any kind of machine. Where there is none, such an end is told as any other.
final class OOMSensor {
    private let trace: OOMTrace
    private var sources: [Source] = []
    private var victims: [Int32] = []

    /// Most of those chosen are no applications: of as many, the oldest are forgotten.
    private static let most = 64

    init(loop: EventLoop, proc: Proc) throws {
        trace = try OOMTrace.open(proc: proc)
        for descriptor in trace.descriptors {
            sources.append(try loop.watch(descriptor) { [weak self] _ in self?.take() })
        }
    }

    /// Whether this process was chosen; it is forgotten then.
    func takeVictim(_ pid: Int32) -> Bool {
        // The choice comes before the end, but our loop may see the end first.
        take()
        guard let index = victims.lastIndex(of: pid) else { return false }
        victims.remove(at: index)
        return true
    }

    private func take() {
        victims += trace.victims()
        if victims.count > Self.most { victims.removeFirst(victims.count - Self.most) }
    }
}
