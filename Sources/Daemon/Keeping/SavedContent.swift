import Linux

/// The content that a client saves.
enum SavedContent: Sendable {
    case bytes([UInt8])
    case memory(SharedMemory)

    var size: UInt64 {
        switch self {
        case .bytes(let bytes): UInt64(bytes.count)
        case .memory(let shared): shared.memory.size
        }
    }

    /// The daemon's own memory that it takes.
    var heldBytes: Int {
        if case .bytes(let bytes) = self { bytes.count } else { 0 }
    }
}

/// A memory file that the worker reads.
final class SharedMemory: Sendable {
    let memory: SealedMemory
    init(_ memory: consuming SealedMemory) { self.memory = memory }
}
