import AppStateContract
import CGIO

/// The default application of a URL or a file.
enum Handler {
    static func notURL(_ text: String) -> Failure {
        Failure(.invalidArgs, "\(text) is neither a URL nor an absolute path")
    }

    /// The id of its desktop entry.
    static func id(of url: String) throws(Failure) -> String {
        let type: String
        let info: OpaquePointer?
        if let path = FileURL.path(of: url) {
            type = try self.type(ofFile: path)
            info = g_app_info_get_default_for_type(type, 0)
        } else {
            guard let scheme = FileURL.scheme(of: url) else { throw notURL(url) }
            type = "x-scheme-handler/\(scheme)"
            info = g_app_info_get_default_for_uri_scheme(scheme)
        }
        guard let info, let id = Entry.id(of: info) else {
            throw Failure(
                .failed,
                "no application is known to open \(url) (\(type)); update-desktop-database(1) registers new ones"
            )
        }
        return id
    }

    private static func type(ofFile path: String) throws(Failure) -> String {
        let file = g_file_new_for_path(path)
        var error: UnsafeMutablePointer<GError>?
        let attribute = "standard::content-type"
        guard let info = g_file_query_info(file, attribute, 0, nil, &error) else {
            throw Failure(.failed, error.map { String(cString: $0.pointee.message) } ?? path)
        }
        return String(cString: g_file_info_get_content_type(info))
    }
}
