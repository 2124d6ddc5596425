import AppStateBus
import AppStateContract
import CCurl
import Glibc
import Linux

/// The arguments of `Begin`, checked: the error names what is wrong.
extension Record {
    private static let mostHeaders = 64
    private static let longestText = 8_192

    /// - Parameter umask: that of the process that calls.
    init(
        number: () -> UInt64, url: String, _ options: [(key: String, value: Variant)], umask: UInt32
    ) throws(MethodError) {
        let scheme = url.prefix { $0 != ":" }.lowercased()
        guard ["http", "https"].contains(scheme), url.dropFirst(scheme.count).hasPrefix("://"),
            !url.dropFirst(scheme.count).hasPrefix(":///"), url.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x7f })
        else { throw .invalidArgs("\"\(url.prefix(256))\" is not a URL of http or https") }
        guard url.utf8.count <= Self.longestText else { throw Self.tooLong("The URL") }
        try Self.check(url: url)
        var record = Record(number: 0, url: url)
        var seen: Set<TransferOption> = []
        for (key, value) in options {
            guard let option = TransferOption(rawValue: key) else {
                throw .invalidArgs("Begin has no option \"\(key.prefix(256))\"")
            }
            guard seen.insert(option).inserted else {
                throw .invalidArgs("The option \"\(key)\" is given twice")
            }
            try record.take(option, value)
        }
        if record.target.isEmpty, record.upload.isEmpty {
            throw .invalidArgs("There is neither a target nor a file to upload")
        }
        if !record.upload.isEmpty, record.size != nil || !record.sha256.isEmpty {
            throw .invalidArgs("size and sha256 are for downloads")
        }
        if !record.upload.isEmpty { record.upload = try Self.resolved(record.upload, "upload") }
        if !record.target.isEmpty {
            record.target = try Self.resolved(record.target, "target")
            var status = stat()
            if lstat(record.target, &status) == 0, !record.replaces || status.st_mode & S_IFMT == S_IFDIR {
                throw .invalidArgs("\(record.target) exists")
            }
        }
        record.mode = 0o666 & ~umask
        record.number = number()
        self = record
    }

    private mutating func take(_ option: TransferOption, _ value: Variant) throws(MethodError) {
        let key = option.rawValue
        func wrong(_ type: String) -> MethodError {
            .invalidArgs("\(key) is of type \(value.signature), not \(type)")
        }
        switch (option, value) {
        case (.target, .string(let path)): target = path
        case (.upload, .string(let path)): upload = path
        case (.headers, .strings(let lines)):
            guard lines.count <= Self.mostHeaders else { throw Self.tooLong("headers") }
            for line in lines { try Self.check(header: line) }
            headers = lines
        case (.size, .uint64(let bytes)): size = bytes
        case (.sha256, .string(let text)):
            guard text.utf8.count == 64, text.allSatisfy(\.isHexDigit) else {
                throw .invalidArgs("sha256 is not 64 hexadecimal digits")
            }
            sha256 = text.lowercased()
        case (.replace, .bool(let flag)): replaces = flag
        case (.discretionary, .bool(let flag)): isDiscretionary = flag
        case (.onlyUnmetered, .bool(let flag)): onlyUnmetered = flag
        case (.application, .string(let id)):
            guard ApplicationID(id) != nil else {
                throw .invalidArgs("\"\(id.prefix(256))\" cannot be the id of an application")
            }
            application = id
        case (.target, _), (.upload, _), (.sha256, _), (.application, _): throw wrong("s")
        case (.headers, _): throw wrong("as")
        case (.size, _): throw wrong("t")
        case (.replace, _), (.discretionary, _), (.onlyUnmetered, _): throw wrong("b")
        }
    }

    private static func check(url: String) throws(MethodError) {
        let parser = curl_url()
        defer { curl_url_cleanup(parser) }
        let result = curl_url_set(parser, CURLUPART_URL, url, 0)
        guard result == CURLUE_OK else {
            throw .invalidArgs("\"\(url.prefix(256))\": \(String(cString: curl_url_strerror(result)))")
        }
    }

    /// A line break would begin another line, or the body.
    private static func check(header line: String) throws(MethodError) {
        let name = line.prefix { $0 != ":" }
        guard line.contains(":"), !name.isEmpty, name.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }),
            line.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7f || $0 == 0x09 })
        else { throw .invalidArgs("\"\(line.prefix(256))\" is not a header: it needs a name and a colon") }
        guard line.utf8.count <= longestText else { throw tooLong("A header") }
        guard !["range", "if-range"].contains(name.lowercased()) else {
            throw .invalidArgs("The header \(name) belongs to the transfer itself")
        }
    }

    private static func tooLong(_ what: String) -> MethodError {
        MethodError(ErrorName.limitsExceeded.rawValue, "\(what): too long")
    }

    /// An absolute path with the symbolic links above its name resolved, for good.
    private static func resolved(_ path: String, _ key: String) throws(MethodError) -> String {
        let (above, name) = TargetFile.split(path)
        guard path.utf8.first == UInt8(ascii: "/"), !name.isEmpty, name != ".", name != ".." else {
            throw .invalidArgs("\(key): \"\(path.prefix(256))\" is not the absolute path of a file")
        }
        guard let whole = realpath(above.isEmpty ? "/" : above, nil) else {
            throw .invalidArgs("\(key): \(above): \(String(cString: strerror(errno)))")
        }
        defer { free(whole) }
        let directory = String(cString: whole)
        return directory == "/" ? "/\(name)" : "\(directory)/\(name)"
    }
}
