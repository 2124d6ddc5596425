import AppStateBus
import CCurl
import Glibc

/// libcurl's transfers on the event loop: curl_multi_socket_action(3). It says which sockets and which time to wait for.
final class Engine {
    private let loop: EventLoop
    private let multi: UnsafeMutableRawPointer
    private var sources: [Int32: Source] = [:]
    private var timer: Timer?
    private var attempts: [UnsafeMutableRawPointer: Attempt] = [:]

    init(loop: EventLoop) throws(BusFailure) {
        self.loop = loop
        curl_global_init(Int(CURL_GLOBAL_DEFAULT))
        guard let multi = curl_multi_init() else {
            throw BusFailure(operation: "make", subject: "a handle of libcurl", errno: ENOMEM)
        }
        self.multi = multi
        timer = try loop.timer { [unowned self] in act(CURL_SOCKET_TIMEOUT, 0) }
        ccurl_multi_set_callbacks(
            multi,
            { _, socket, what, data, _ in
                if let data { Unmanaged<Engine>.fromOpaque(data).takeUnretainedValue().watch(socket, what) }
                return 0
            },
            { _, milliseconds, data in
                if let data { Unmanaged<Engine>.fromOpaque(data).takeUnretainedValue().wait(milliseconds) }
                return 0
            }, Unmanaged.passUnretained(self).toOpaque())
    }

    func start(_ attempt: Attempt) {
        attempts[attempt.handle] = attempt
        curl_multi_add_handle(multi, attempt.handle)
    }

    /// Ends an attempt without an outcome.
    func stop(_ attempt: Attempt) {
        curl_multi_remove_handle(multi, attempt.handle)
        attempts[attempt.handle] = nil
    }

    private func watch(_ socket: Int32, _ what: Int32) {
        sources.removeValue(forKey: socket)?.cancel()
        var readiness: Readiness = []
        if what & CURL_POLL_IN != 0, what != CURL_POLL_REMOVE { readiness.insert(.readable) }
        if what & CURL_POLL_OUT != 0, what != CURL_POLL_REMOVE { readiness.insert(.writable) }
        if readiness.isEmpty { return }
        // If the kernel watches no more descriptors, libcurl's own time limits end the attempt.
        sources[socket] = try? loop.watch(socket, for: readiness) { [unowned self] ready in
            var mask: Int32 = 0
            if ready.contains(.readable) { mask |= CURL_CSELECT_IN }
            if ready.contains(.writable) { mask |= CURL_CSELECT_OUT }
            if !ready.isDisjoint(with: [.error, .hangUp]) { mask |= CURL_CSELECT_ERR }
            act(socket, mask)
        }
    }

    private func wait(_ milliseconds: Int) {
        guard milliseconds >= 0 else {
            timer?.disarm()
            return
        }
        timer?.arm(at: EventLoop.clock + UInt64(milliseconds) * 1_000)
    }

    private func act(_ socket: Int32, _ mask: Int32) {
        var running: Int32 = 0
        curl_multi_socket_action(multi, socket, mask, &running)
        var result = CURLE_OK
        while let handle = ccurl_multi_take_ended(multi, &result) {
            guard let attempt = attempts[handle] else { continue }
            stop(attempt)
            attempt.end(result)
        }
    }
}
