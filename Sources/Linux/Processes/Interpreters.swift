/// Programs that run other programs, so their names do not identify an application.
public enum Interpreters {
    /// The names, without the version that may follow.
    public static let names: Set<String> = [
        "bash", "dash", "gjs", "java", "mono", "node", "perl", "python", "ruby", "sh",
    ]
}
