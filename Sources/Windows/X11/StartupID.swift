/// The contents of a launch's id (Startup Notification Protocol 0.2).
public enum StartupID {
    /// The time of the user's action that caused the launch, by the X server's clock: the number after the last
    /// `_TIME`; nil if the id has none.
    public static func time(of id: String) -> UInt32? {
        let mark = Array("_TIME".utf8)
        let bytes = Array(id.utf8)
        guard bytes.count > mark.count else { return nil }
        for start in stride(from: bytes.count - mark.count, through: 0, by: -1)
        where bytes[start..<start + mark.count].elementsEqual(mark) {
            return UInt32(String(decoding: bytes[(start + mark.count)...], as: UTF8.self))
        }
        return nil
    }
}
