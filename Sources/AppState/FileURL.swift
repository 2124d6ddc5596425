internal import AppStateContract

/// The URLs of files (RFC 8089), for applications that do not use Foundation.
///
///     func application(_ application: Application, open urls: [String], options: [String: Value]) {
///         for path in urls.compactMap(FileURL.path) { open(path) }
///     }
public enum FileURL {
    /// The path of a file of this machine.
    ///
    /// - Parameter url: a `file:` URL whose host is empty or `localhost`, or an absolute path.
    /// - Returns: the path, decoded. nil: the URL does not name a file of this machine, or the text is not a URL.
    public static func path(of url: String) -> String? { AppStateContract.FileURL.path(of: url) }

    /// The URL of a file.
    ///
    /// - Parameter path: an absolute path.
    /// - Returns: the URL, encoded.
    public static func url(of path: String) -> String { AppStateContract.FileURL.url(of: path) }
}
