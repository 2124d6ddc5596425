import AppStateBus
import AppStateContract

/// What the disk has of a transfer.
struct Record: Equatable, Sendable {
    var number: UInt64
    /// CLOCK_REALTIME of the end; microseconds.
    var ended: UInt64 = 0
    var url: String
    /// The application that is told of the end; empty: none.
    var application = ""
    /// Where the answer goes: an absolute path without symbolic links above the name. Empty: nowhere.
    var target = ""
    /// The file that is sent; empty: none is.
    var upload = ""
    /// The permissions of the new file, by the umask of the process that began the transfer.
    var mode: UInt32 = 0o600
    var headers: [String] = []
    var size: UInt64?
    /// The expected hash, in small hexadecimal digits; empty: none.
    var sha256 = ""
    var replaces = false
    var isDiscretionary = false
    var onlyUnmetered = false

    var stage = Stage.waiting
    /// How often a person has begun it anew.
    var retries: UInt64 = 0
    /// The strong tag of the entity whose beginning the temporary file has; empty: the file is of no use.
    var tag = ""
    /// How many bytes of the temporary file are on the disk: after a crash, the rest may have holes.
    var synced: UInt64 = 0
    /// The number of bytes; 0: not known.
    var total: UInt64 = 0
    var received: UInt64 = 0
    var status: UInt32 = 0
    /// The temporary file's number while it gets its name.
    var inode: UInt64 = 0
    var error = ""
    var notice = Notice.none

    enum Stage: String, Sendable {
        case waiting
        /// The file is complete, and gets its name.
        case landing
        case finished, failed
    }

    /// Whether the application knows of the end.
    enum Notice: Equatable, Sendable {
        case none
        /// The daemon is being asked to tell it, since then (CLOCK_REALTIME). After a crash it is not known whether the
        /// application was told.
        case asked(UInt64)
        case given
    }

    var isEnded: Bool { stage == .finished || stage == .failed }

    /// Names one end of the transfer: another one follows if a person begins it anew.
    var id: String { retries == 0 ? String(number) : "\(number).\(retries)" }

    var temporaryName: String { ".appstate-transfer-\(number)" }

    /// The URL without the name and the password: every process on the bus can read properties.
    var shownURL: String {
        guard let scheme = url.firstIndex(of: ":") else { return url }
        let begin = url.index(scheme, offsetBy: 3, limitedBy: url.endIndex) ?? url.endIndex
        let authority = url[begin...].prefix { !"/?#".contains($0) }
        guard let at = authority.lastIndex(of: "@") else { return url }
        return String(url[..<begin] + url[at...].dropFirst())
    }

    init(number: UInt64, url: String) {
        self.number = number
        self.url = url
    }

    /// What the application learns of the end.
    var result: [(TransferResult, Variant)] {
        var entries: [(TransferResult, Variant)] = [
            (.url, .string(shownURL)), (.state, .string(stage.rawValue)), (.received, .uint64(received)),
            (.status, .uint32(status)),
        ]
        if !target.isEmpty { entries.append((.target, .string(target))) }
        if !upload.isEmpty { entries.append((.upload, .string(upload))) }
        if !error.isEmpty { entries.append((.error, .string(error))) }
        return entries
    }
}

// MARK: On the disk

extension Record {
    /// The texts of `Variant.texts`, each with a NUL behind it: no text from the bus contains one.
    var bytes: [UInt8] {
        let texts = Variant.dictionary(entries).texts ?? []
        return texts.flatMap { Array($0.utf8) + [0] }
    }

    /// nil: the file is damaged.
    init?(number: UInt64, _ bytes: [UInt8]) {
        guard bytes.last == 0 else { return nil }
        var texts = bytes.dropLast().split(separator: 0, omittingEmptySubsequences: false)
            .map { String(decoding: $0, as: UTF8.self) }[...]
        guard case .dictionary(let entries)? = Variant(texts: &texts), texts.isEmpty,
            case .string(let url)? = entries["url"]
        else { return nil }
        func text(_ key: String) -> String {
            if case .string(let text)? = entries[key] { text } else { "" }
        }
        func number64(_ key: String) -> UInt64? {
            if case .uint64(let number)? = entries[key] { number } else { nil }
        }
        func flag(_ key: String) -> Bool { entries[key] == .bool(true) }
        self.init(number: number, url: url)
        ended = number64("ended") ?? 0
        application = text("application")
        target = text("target")
        upload = text("upload")
        mode = UInt32(truncatingIfNeeded: number64("mode") ?? 0o600)
        if case .strings(let lines)? = entries["headers"] { headers = lines }
        size = number64("size")
        sha256 = text("sha256")
        replaces = flag("replaces")
        isDiscretionary = flag("discretionary")
        onlyUnmetered = flag("only-unmetered")
        guard let stage = Stage(rawValue: text("stage")) else { return nil }
        self.stage = stage
        retries = number64("retries") ?? 0
        tag = text("tag")
        synced = number64("synced") ?? 0
        total = number64("total") ?? 0
        received = number64("received") ?? 0
        status = UInt32(truncatingIfNeeded: number64("status") ?? 0)
        inode = number64("inode") ?? 0
        error = text("error")
        notice = flag("told") ? .given : number64("asked").map(Notice.asked) ?? .none
    }

    private var entries: [String: Variant] {
        var entries: [String: Variant] = [
            "ended": .uint64(ended), "url": .string(url),
            "application": .string(application), "target": .string(target), "upload": .string(upload),
            "mode": .uint64(UInt64(mode)), "headers": .strings(headers), "sha256": .string(sha256),
            "replaces": .bool(replaces), "discretionary": .bool(isDiscretionary),
            "only-unmetered": .bool(onlyUnmetered), "stage": .string(stage.rawValue),
            "retries": .uint64(retries), "tag": .string(tag), "synced": .uint64(synced),
            "total": .uint64(total), "received": .uint64(received), "status": .uint64(UInt64(status)),
            "inode": .uint64(inode), "error": .string(error),
        ]
        entries["size"] = size.map(Variant.uint64)
        switch notice {
        case .none: break
        case .asked(let time): entries["asked"] = .uint64(time)
        case .given: entries["told"] = .bool(true)
        }
        return entries
    }
}
