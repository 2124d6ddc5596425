import AppStateContract
import CCurl
import Glibc
import Linux

/// One request for a transfer: what is sent, what the server answers, and where that goes.
final class Attempt {
    let handle: UnsafeMutableRawPointer
    private let record: Record
    /// The temporary file, owned; nil: the answer's body is dropped.
    let file: Int32?
    private let upload: Int32?
    private var list: UnsafeMutablePointer<curl_slist>?
    /// Where the requested part begins; 0: everything is requested.
    private var start: UInt64 = 0
    private var response = Response()
    /// What was done about the answer's first byte; nil: it has not come.
    private var use: Use?
    /// The end that was decided before libcurl's.
    private var verdict: Outcome?
    /// The bytes in the file.
    private var written: UInt64 = 0
    /// The bytes of an upload that were sent.
    private var sent: UInt64 = 0
    /// Those of an upload, otherwise those of the answer.
    private(set) var total: UInt64 = 0
    private(set) var status: UInt32 = 0

    /// The bytes in the file or, of an upload, sent.
    var received: UInt64 { upload == nil ? written : sent }

    /// Called when another entity than that of the record begins.
    var begun: (_ tag: String, _ total: UInt64) -> Void = { _, _ in }
    var progressed: () -> Void = {}
    var ended: (Outcome) -> Void = { _ in }

    enum Outcome {
        case complete
        /// Cut off, or refused for a while: it is tried again, after so many seconds at least.
        case interrupted(String, after: UInt64 = 0)
        /// What is there is of no use.
        case useless(String)
        case failed(TransferError, String)
    }

    private enum Use { case write, drop }

    private struct Response {
        var reason = ""
        var tag = ""
        var length: UInt64?
        var rangeStart: UInt64?
        var rangeTotal: UInt64?
        var retryAfter: UInt64 = 0
    }

    /// - Parameter stall: seconds without a byte after which the attempt ends.
    init(_ record: Record, stall: Int) throws(TargetFile.Failure) {
        self.record = record
        let upload = try Self.source(record)
        self.upload = upload
        do throws(TargetFile.Failure) {
            file = try Self.temporary(record)
        } catch {
            if let upload { close(upload) }
            throw error
        }
        if let file {
            if !record.tag.isEmpty, record.upload.isEmpty {
                start = min(TargetFile.size(ofDescriptor: file), record.synced)
            }
            ftruncate(file, off_t(start))
        }
        if let upload {
            total = TargetFile.size(ofDescriptor: upload)
        } else {
            total = start > 0 ? record.total : record.size ?? 0
        }
        written = start
        guard let handle = curl_easy_init() else { preconditionFailure("out of memory") }
        self.handle = handle
        configure(stall)
    }

    private static func temporary(_ record: Record) throws(TargetFile.Failure) -> Int32? {
        if record.target.isEmpty { return nil }
        return try TargetFile.openTemporary(record).release()
    }

    private static func source(_ record: Record) throws(TargetFile.Failure) -> Int32? {
        if record.upload.isEmpty { return nil }
        return try TargetFile.openForReading(record.upload).release()
    }

    deinit {
        curl_easy_cleanup(handle)
        curl_slist_free_all(list)
        for file in [file, upload].compactMap(\.self) { close(file) }
    }

    /// All of it was there before the request.
    var isWhole: Bool { start > 0 && start == record.total }

    private func configure(_ stall: Int) {
        let own = Unmanaged.passUnretained(self).toOpaque()
        ccurl_set_text(handle, CURLOPT_URL, record.url)
        ccurl_set_text(handle, CURLOPT_PROTOCOLS_STR, "http,https")
        ccurl_set_text(handle, CURLOPT_REDIR_PROTOCOLS_STR, "http,https")
        ccurl_set_text(handle, CURLOPT_USERAGENT, "appstate-transfer/\(Product.version)")
        ccurl_set_long(handle, CURLOPT_NOSIGNAL, 1)
        ccurl_set_long(handle, CURLOPT_FOLLOWLOCATION, 1)
        ccurl_set_long(handle, CURLOPT_MAXREDIRS, 10)
        ccurl_set_long(handle, CURLOPT_CONNECTTIMEOUT, stall)
        ccurl_set_long(handle, CURLOPT_LOW_SPEED_LIMIT, 1)
        ccurl_set_long(handle, CURLOPT_LOW_SPEED_TIME, stall)
        ccurl_set_long(handle, CURLOPT_BUFFERSIZE, 256 << 10)
        for line in record.headers { list = curl_slist_append(list, line) }
        if start > 0 {
            list = curl_slist_append(list, "Range: bytes=\(start)-")
            list = curl_slist_append(list, "If-Range: \(record.tag)")
        }
        ccurl_set_pointer(handle, CURLOPT_HTTPHEADER, list)
        ccurl_set_transfer_callback(handle, CURLOPT_WRITEFUNCTION) { bytes, size, count, own in
            Attempt.at(own).write(UnsafeRawBufferPointer(start: bytes, count: size * count))
                ? size * count : 0
        }
        ccurl_set_pointer(handle, CURLOPT_WRITEDATA, own)
        ccurl_set_transfer_callback(handle, CURLOPT_HEADERFUNCTION) { bytes, size, count, own in
            let line = UnsafeRawBufferPointer(start: bytes, count: size * count)
            Attempt.at(own).take(header: String(decoding: line, as: UTF8.self))
            return size * count
        }
        ccurl_set_pointer(handle, CURLOPT_HEADERDATA, own)
        guard upload != nil else { return }
        ccurl_set_long(handle, CURLOPT_UPLOAD, 1)
        ccurl_set_offset(handle, CURLOPT_INFILESIZE_LARGE, curl_off_t(total))
        ccurl_set_transfer_callback(handle, CURLOPT_READFUNCTION) { bytes, size, count, own in
            Attempt.at(own).read(UnsafeMutableRawBufferPointer(start: bytes, count: size * count))
        }
        ccurl_set_pointer(handle, CURLOPT_READDATA, own)
        // After a redirection it is sent from its beginning.
        ccurl_set_seek_callback(handle) { own, offset, origin in
            guard origin == SEEK_SET, offset >= 0 else { return CURL_SEEKFUNC_FAIL }
            Attempt.at(own).sent = UInt64(offset)
            return CURL_SEEKFUNC_OK
        }
        ccurl_set_pointer(handle, CURLOPT_SEEKDATA, own)
    }

    private static func at(_ pointer: UnsafeMutableRawPointer?) -> Attempt {
        guard let pointer else { preconditionFailure("libcurl passes on what it was given") }
        return Unmanaged<Attempt>.fromOpaque(pointer).takeUnretainedValue()
    }

    // MARK: The answer

    private func take(header line: String) {
        if line.hasPrefix("HTTP/") {
            response = Response()
            let words = line.split(separator: " ", maxSplits: 2)
            if words.count == 3 {
                response.reason = String(words[2].unicodeScalars.prefix(80).filter { $0.value >= 0x20 })
            }
            return
        }
        guard let colon = line.firstIndex(of: ":") else { return }
        let value = String(
            line[line.index(after: colon)...].unicodeScalars.filter { $0.value >= 0x20 }.drop {
                $0 == " "
            })
        switch line[..<colon].lowercased() {
        // A weak tag, which begins with W/, does not say that the bytes are the same.
        case "etag": response.tag = value.hasPrefix("\"") && value.utf8.count <= 1_024 ? value : ""
        case "content-length": response.length = UInt64(value)
        case "retry-after": response.retryAfter = UInt64(value) ?? 0
        case "content-range":
            // bytes 100-199/200
            let parts = value.split(whereSeparator: { " -/".contains($0) })
            guard parts.count == 4, parts[0] == "bytes" else { return }
            response.rangeStart = UInt64(parts[1])
            response.rangeTotal = UInt64(parts[3])
        default: break
        }
    }

    /// Decides what the bytes of the answer are.
    private func accept() -> Use? {
        status = UInt32(clamping: ccurl_status(handle))
        guard (200..<300).contains(status), let file else { return .drop }
        if status == 206 {
            guard start > 0, response.rangeStart == start, response.tag == record.tag,
                response.rangeTotal == nil || record.total == 0 || response.rangeTotal == record.total
            else {
                verdict = .useless("the server has sent another part than the one requested")
                return nil
            }
            if total == 0 { total = response.rangeTotal ?? 0 }
            return .write
        }
        // Another entity than before, or a server without ranges.
        guard ftruncate(file, 0) == 0 else {
            let failure = TargetFile.Failure("truncate", record.target, errno)
            verdict = .failed(failure.word, failure.sentence)
            return nil
        }
        written = 0
        if let length = response.length, let size = record.size, length != size {
            verdict = .failed(.size, "the server has \(length) bytes, not \(size)")
            return nil
        }
        // What an upload is answered has no part in its progress, and is never resumed.
        if upload != nil { return .write }
        total = response.length ?? record.size ?? 0
        begun(response.tag, total)
        return .write
    }

    private func write(_ bytes: UnsafeRawBufferPointer) -> Bool {
        if use == nil { use = accept() }
        guard let use else { return false }
        guard use == .write, let file else { return true }
        if let size = record.size, written + UInt64(bytes.count) > size {
            verdict = .failed(.size, "the server sends more than \(size) bytes")
            return false
        }
        var rest = bytes
        while !rest.isEmpty {
            let count = pwrite(file, rest.baseAddress, rest.count, off_t(written))
            if count < 0, errno == EINTR { continue }
            guard count > 0 else {
                let failure = TargetFile.Failure("write", record.target, count < 0 ? errno : EIO)
                verdict = .failed(failure.word, failure.sentence)
                return false
            }
            written += UInt64(count)
            rest = UnsafeRawBufferPointer(rebasing: rest[count...])
        }
        progressed()
        return true
    }

    private func read(_ room: UnsafeMutableRawBufferPointer) -> Int {
        guard let upload else { return 0 }
        let count = pread(upload, room.baseAddress, room.count, off_t(sent))
        guard count >= 0 else {
            verdict = .failed(.file, "read \(record.upload): \(String(cString: strerror(errno)))")
            return Int(CURL_READFUNC_ABORT)
        }
        sent += UInt64(count)
        progressed()
        return count
    }

    // MARK: The end

    func end(_ result: CURLcode) {
        // An answer without a body.
        if result == CURLE_OK, use == nil { use = accept() }
        ended(outcome(result))
    }

    private func outcome(_ result: CURLcode) -> Outcome {
        if let verdict { return verdict }
        let said = String(cString: curl_easy_strerror(result))
        switch result {
        case CURLE_OK: return answered()
        case CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE, CURLE_SSL_ISSUER_ERROR:
            return .failed(.tls, said)
        case CURLE_URL_MALFORMAT, CURLE_TOO_MANY_REDIRECTS: return .failed(.http, said)
        // A redirection to another protocol.
        case CURLE_UNSUPPORTED_PROTOCOL where (300..<400).contains(ccurl_status(handle)):
            return .failed(.http, said)
        case CURLE_UNSUPPORTED_PROTOCOL, CURLE_WEIRD_SERVER_REPLY:
            return .interrupted("the answer is not HTTP")
        case CURLE_PARTIAL_FILE:
            return .interrupted("the server has closed the connection after \(received) bytes")
        case CURLE_OPERATION_TIMEDOUT: return .interrupted("the server does not answer, or has stalled")
        default: return .interrupted(said)
        }
    }

    private func answered() -> Outcome {
        let line = "the server has answered \(status) \(response.reason)"
        switch status {
        case 200..<300:
            if let upload {
                return sent < TargetFile.size(ofDescriptor: upload)
                    ? .failed(.file, "\(record.upload) has become longer") : .complete
            }
            if let size = record.size, received < size, status != 206 {
                return .failed(.size, "the server has sent \(received) bytes, not \(size)")
            }
            return received < total
                ? .interrupted("the server has sent less than it had announced") : .complete
        case 401, 407: return .failed(.credentials, line)
        case 416 where start > 0: return .useless(line)
        case 408, 425, 429, 500, 502, 503, 504: return .interrupted(line, after: response.retryAfter)
        default: return .failed(.http, line)
        }
    }
}
