/// The information that the programs give about themselves.
public enum Product {
    public static let version = "0.1.0"
}
