import CSystemd
import Glibc

/// One method call, lent to its handler. The handler must answer it with `reply`, `fail` or a thrown error, or later
/// through `deferred()`.
public struct Call: ~Copyable {
    /// The call itself, with its arguments to be read.
    public let message: Message
    private let answered: UnsafeMutablePointer<Bool>
    private let complain: (String) -> Void

    /// - Parameter answered: where to record that the call was answered; outlives the call.
    init(
        _ message: consuming Message, answered: UnsafeMutablePointer<Bool>,
        _ complain: @escaping (String) -> Void
    ) {
        self.message = message
        self.answered = answered
        self.complain = complain
    }

    /// The object path that was called.
    public var path: String { message.path ?? "" }
    /// The unique name of the caller.
    public var sender: String { message.sender ?? "" }
    /// The method's name.
    public var member: String { message.member ?? "" }

    /// Reads arguments. If they do not have the expected types, that is the caller's mistake, `InvalidArgs`. A
    /// `MethodError` from `body` is passed on unchanged.
    public borrowing func read<Value, Failure: Error>(
        _ body: (borrowing Message) throws(Failure) -> Value
    ) throws(MethodError) -> Value {
        do {
            return try body(message)
        } catch {
            throw Answer.error(for: error)
        }
    }

    /// Answers with no results.
    public borrowing func reply() throws(MethodError) {
        try reply { _ in }
    }

    /// Answers with the values that `body` appends. If this fails, or the reply cannot be sent, the call is
    /// not answered yet, and the thrown error is the one to answer with: a `MethodError` from `body`
    /// unchanged, otherwise `Failed`.
    public borrowing func reply<Failure: Error>(
        _ body: (borrowing Message) throws(Failure) -> Void
    ) throws(MethodError) {
        do throws(BusFailure) {
            try Answer.reply(to: message, body)
        } catch {
            throw MethodError(error)
        }
        answered.pointee = true
    }

    /// Answers with an error; the same as throwing it.
    public borrowing func fail(_ error: MethodError) {
        Answer.fail(message, error, complain)
        answered.pointee = true
    }

    /// Keeps the call, to answer it once, later.
    public borrowing func deferred() -> PendingCall {
        answered.pointee = true
        return PendingCall(message.retained(), complain)
    }
}

/// A method call that is answered after its handler has returned. If it is released without an answer, it answers
/// `Failed`, so that the caller does not wait in vain.
public final class PendingCall {
    /// The call itself.
    public let message: Message
    /// Whether it was answered.
    public private(set) var isAnswered = false
    private let complain: (String) -> Void

    init(_ message: consuming Message, _ complain: @escaping (String) -> Void) {
        self.message = message
        self.complain = complain
    }

    deinit {
        if !isAnswered {
            Answer.fail(message, .failed("\(message.subject) was dropped without an answer"), complain)
        }
    }

    /// The object path that was called.
    public var path: String { message.path ?? "" }
    /// The unique name of the caller.
    public var sender: String { message.sender ?? "" }
    /// The method's name.
    public var member: String { message.member ?? "" }

    /// Answers with no results.
    public func reply() {
        reply { _ in }
    }

    /// Answers with the values that `body` appends; if this fails, the caller gets `Failed`. It is not a
    /// failure if the caller has left. A second answer is ignored.
    public func reply<Failure: Error>(_ body: (borrowing Message) throws(Failure) -> Void) {
        guard !isAnswered else { return }
        isAnswered = true
        do throws(BusFailure) {
            try Answer.reply(to: message, body)
        } catch {
            if Answer.isGone(error.errno) { return }
            complain("\(message.subject): \(error)")
            Answer.fail(message, MethodError(error), complain)
        }
    }

    /// Answers with an error. A second answer is ignored.
    public func fail(_ error: MethodError) {
        guard !isAnswered else { return }
        isAnswered = true
        Answer.fail(message, error, complain)
    }
}

/// How calls are answered.
enum Answer {
    static func reply<Failure: Error>(
        to call: borrowing Message, _ body: (borrowing Message) throws(Failure) -> Void
    ) throws(BusFailure) {
        guard call.expectsReply else { return }
        var made: OpaquePointer?
        try check(sd_bus_message_new_method_return(call.pointer, &made), "answer", call.subject)
        let reply = try Bus.taken(made, "answer", call.subject)
        do {
            try body(reply)
        } catch {
            throw BusFailure(error, from: "answer", to: call.subject)
        }
        try check(
            sd_bus_send(sd_bus_message_get_bus(call.pointer), reply.pointer, nil), "answer", call.subject)
    }

    /// A connection that is closing accepts no answers, and no caller waits for one there.
    static func fail(_ call: borrowing Message, _ error: MethodError, _ complain: (String) -> Void) {
        guard call.expectsReply else { return }
        let result = error.name.withCString { name in
            (error.message.withoutNoncharacters ?? error.message).withCString { message in
                var answer = sd_bus_error(name: name, message: message, _need_free: 0)
                return sd_bus_reply_method_error(call.pointer, &answer)
            }
        }
        if result < 0, !isGone(-result) {
            complain("answer \(call.subject) with \(error): \(String(cString: strerror(-result)))")
        }
    }

    static func isGone(_ errno: Int32) -> Bool {
        errno == ENOTCONN || errno == ECONNRESET
    }

    /// The error to answer with for any error that a handler threw.
    static func error(for failure: any Error) -> MethodError {
        switch failure {
        case let error as MethodError: error
        case let failure as BusFailure: MethodError(failure)
        default: .failed("\(failure)")
        }
    }
}
