/// What an id of a launch says (Startup Notification Protocol 0.2).
public enum StartupID {
    /// When the user did what the launch came of, by the X server's clock: the number after the last `_TIME`; nil where
    /// the id has none.
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
