/// How a process ended.
public enum ExitStatus: Equatable, Sendable {
    /// It called exit(3) with this status, 0 to 255.
    case exited(Int32)
    /// A signal ended it.
    case signalled(Int32, coreDumped: Bool)
    /// It has not ended, or the kernel does not report how.
    case unknown
}

extension ExitStatus {
    /// Reads the status word of wait(2): the exit status in bits 8 to 15, or the signal in bits 0 to 6 and
    /// the core dump in bit 7.
    public init(waitStatus word: Int32) {
        let signal = word & 0x7F
        switch signal {
        case 0: self = .exited((word >> 8) & 0xFF)
        case 0x7F: self = .unknown
        default: self = .signalled(signal, coreDumped: word & 0x80 != 0)
        }
    }
}
