import AppStateContract
import CGIO
import Glibc

/// A desktop entry whose program is installed.
final class Entry {
    let id: String
    private let info: OpaquePointer
    private static let suffix = ".desktop"

    private init(_ id: String, owning info: OpaquePointer) { (self.id, self.info) = (id, info) }

    deinit { g_object_unref(UnsafeMutableRawPointer(info)) }

    /// All entries but the hidden ones.
    static var all: [Entry] {
        var entries: [Entry] = []
        var next = g_app_info_get_all()
        while let item = next {
            if let data = item.pointee.data, let id = id(of: OpaquePointer(data)) {
                entries.append(Entry(id, owning: OpaquePointer(data)))
            }
            next = item.pointee.next
        }
        return entries
    }

    static func id(of info: OpaquePointer) -> String? {
        guard let name = g_app_info_get_id(info).map({ String(cString: $0) }), name.hasSuffix(suffix) else {
            return nil
        }
        return String(name.dropLast(suffix.count))
    }

    init(id: String) throws(Failure) {
        // A path would lead out of the directories.
        guard !id.isEmpty, !id.utf8.contains(UInt8(ascii: "/")) else { throw Absence.none(id) }
        guard let info = g_desktop_app_info_new(id + Self.suffix) else { throw Absence.reason(id) }
        (self.id, self.info) = (id, info)
    }

    // MARK: Its keys

    private func text(_ key: String) -> String? { taken(g_desktop_app_info_get_string(info, key)) }
    private func isSet(_ key: String) -> Bool { g_desktop_app_info_get_boolean(info, key) != 0 }
    private var exec: String? { g_app_info_get_commandline(info).map { String(cString: $0) } }
    var path: String { g_desktop_app_info_get_filename(info).map { String(cString: $0) } ?? "" }
    var name: String { g_app_info_get_name(info).map { String(cString: $0) } ?? id }
    var icon: String? { taken(g_desktop_app_info_get_locale_string(info, "Icon")) }
    private var windowClass: String { text("StartupWMClass") ?? "" }

    /// The record for `list`.
    var row: [String] {
        var count: UInt = 0
        let types = g_desktop_app_info_get_string_list(info, "X-AppState-ActivityTypes", &count)
        defer { g_strfreev(types) }
        return [id, windowClass, program ?? "", isSet("NoDisplay") ? "" : "shown", name, icon ?? ""]
            + (0..<Int(count)).compactMap { types?[$0].map { String(cString: $0) } }
    }

    /// The program in `Exec`, without its directories; after `env`, the program that `env` starts.
    private var program: String? {
        let words = exec.flatMap { try? Exec.words($0).get() } ?? []
        let program = words.drop { $0 == "env" || $0.hasSuffix("/env") || $0.contains("=") }.first
        return program?.split(separator: "/").last.map(String.init)
    }

    // MARK: Its start

    /// The records for `start`.
    ///
    /// The session bus can start an application whatever is wrong with its command line.
    func start(opening urls: [String]) throws(Failure) -> [[String]] {
        let isActivatable = isSet("DBusActivatable")
        func entry(_ obstacle: String) -> [String] {
            [
                path, name, icon ?? "", windowClass, isSet("StartupNotify") ? "notify" : "",
                isActivatable ? "bus" : "", obstacle,
            ]
        }
        do throws(Failure) {
            return [entry("")] + (try commands(opening: urls))
        } catch {
            guard isActivatable else { throw error }
            return [entry(error.text)]
        }
    }

    private func commands(opening urls: [String]) throws(Failure) -> [[String]] {
        guard let exec, !exec.isEmpty else {
            throw Failure(.notSupported, "the desktop entry \(id) has no Exec: there is nothing to start")
        }
        let directory = text("Path") ?? ""
        guard directory.isEmpty || isDirectory(directory) else {
            throw Failure(.failed, "Path of \(id) names the directory \(directory), which does not exist")
        }
        var records: [[String]] = []
        for line in try Exec(exec, of: self).lines(opening: urls) {
            guard let file = line.first.flatMap({ found($0) }) else {
                throw Absence.program(line.first ?? "", of: "Exec", id)
            }
            guard isSet("Terminal") else {
                records.append([directory, file] + line)
                continue
            }
            guard let terminal = Terminal.find() else {
                throw Failure(
                    .notSupported, "\(id) runs in a terminal, and no terminal emulator is installed")
            }
            // The terminal needs the file, so the name by which the program is called is dropped.
            records.append([directory] + terminal + [file] + line.dropFirst())
        }
        return records
    }
}

/// Why there is no entry that can be started.
enum Absence {
    static func none(_ id: String) -> Failure {
        Failure(.noSuchApplication, "there is no desktop entry \(id)")
    }

    static func program(_ program: String, of key: String, _ id: String) -> Failure {
        Failure(
            key == "Exec" ? .failed : .noSuchApplication,
            "\(key) of \(id) names the program \(program), which is not installed")
    }

    /// What GIO does not say about an entry that it does not return.
    static func reason(_ id: String) -> Failure {
        let file = g_key_file_new()
        defer { g_key_file_free(file) }
        func text(_ key: String) -> String {
            taken(g_key_file_get_string(file, "Desktop Entry", key, nil)) ?? ""
        }
        var path: UnsafeMutablePointer<CChar>?
        guard
            g_key_file_load_from_data_dirs(file, "applications/\(id).desktop", &path, 0, nil) != 0
        else { return none(id) }
        let place = taken(path) ?? ""
        if g_key_file_get_boolean(file, "Desktop Entry", "Hidden", nil) != 0 {
            return Failure(.noSuchApplication, "the desktop entry \(id) is hidden by \(place)")
        }
        guard text("Type") == "Application" else {
            let type = text("Type").isEmpty ? "without a Type" : "a \(text("Type"))"
            return Failure(.noSuchApplication, "the desktop entry \(id) is \(type), not an Application")
        }
        let tryExec = text("TryExec")
        if !tryExec.isEmpty, found(tryExec) == nil { return program(tryExec, of: "TryExec", id) }
        switch Exec.words(text("Exec")) {
        case .failure(let why): return Exec.broken(id, text("Exec"), why.text)
        case .success(let words): return program(words.first ?? "", of: "Exec", id)
        }
    }
}

/// A string that GLib has given to us; nil: none, or an empty one.
func taken(_ text: UnsafeMutablePointer<CChar>?) -> String? {
    defer { g_free(text) }
    return text.flatMap { $0.pointee == 0 ? nil : String(cString: $0) }
}

private func isDirectory(_ path: String) -> Bool {
    var information = stat()
    return stat(path, &information) == 0 && information.st_mode & S_IFMT == S_IFDIR
}

/// The file of an installed program.
func found(_ program: String) -> String? { taken(g_find_program_in_path(program)) }
