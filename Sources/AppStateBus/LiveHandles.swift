import Glibc

/// How many references to libsystemd's objects this layer holds on the calling thread.
///
/// Each thread counts its own references, because all objects of a bus stay on one thread. The counts
/// therefore need no lock, and several threads with a bus each do not affect one another. For tests: a
/// scenario must release everything that it has acquired.
package enum LiveHandles {
    package struct Counts: Equatable {
        package var messages = 0
        /// Objects, matches, filters and pending calls, each until libsystemd frees it.
        package var slots = 0
        /// Event sources, each until libsystemd frees it.
        package var sources = 0
        package var buses = 0
    }

    package static var now: Counts { counts.pointee }

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
