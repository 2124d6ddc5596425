import Glibc

/// How many references to libsystemd's objects this layer holds on the calling thread.
///
/// A thread counts its own because everything of a bus stays on one thread; so the counts need no lock, and
/// several threads with a bus each do not disturb one another. For tests: what a scenario took it must give
/// back.
package enum LiveHandles {
    /// References to messages.
    package static var messages: Int { counts.pointee.messages }
    /// Slots: objects, matches, filters, calls under way. A slot is counted until libsystemd frees it.
    package static var slots: Int { counts.pointee.slots }
    /// Event sources, counted until libsystemd frees them.
    package static var sources: Int { counts.pointee.sources }
    /// Bus connections.
    package static var buses: Int { counts.pointee.buses }

    struct Counts {
        var messages = 0
        var slots = 0
        var sources = 0
        var buses = 0
    }

    private static let key: pthread_key_t = {
        var key = pthread_key_t()
        let result = pthread_key_create(&key) { free($0) }
        precondition(result == 0, "no thread-specific key left")
        return key
    }()

    static var counts: UnsafeMutablePointer<Counts> {
        if let known = pthread_getspecific(key) {
            return known.assumingMemoryBound(to: Counts.self)
        }
        guard let memory = calloc(1, MemoryLayout<Counts>.size) else {
            preconditionFailure("out of memory")
        }
        pthread_setspecific(key, memory)
        let counts = memory.bindMemory(to: Counts.self, capacity: 1)
        counts.initialize(to: Counts())
        return counts
    }
}
