import AppState
import AppStateContract
import Testing

/// The values that are sent between applications, and the names of those that have a fixed set.
@Suite("Values")
struct ValueTests {
    @Test("a number is read as any kind of number that can represent it")
    func numbers() {
        #expect(Value.int(-1).intValue == -1)
        #expect(Value.int(-1).uintValue == nil)
        #expect(Value.int(7).uintValue == 7)
        #expect(Value.uint(.max).uintValue == .max)
        #expect(Value.uint(.max).intValue == nil)
        #expect(Value.int(7).doubleValue == 7)
        #expect(Value.uint(7).doubleValue == 7)
        #expect(Value.double(0.5).doubleValue == 0.5)
        #expect(Value.double(7).intValue == nil)
        #expect(Value.int(.max).doubleValue == nil)
        #expect(Value.string("7").doubleValue == nil)
    }

    @Test("bytes and lists are read as what they are")
    func lists() {
        #expect(Value.bytes([1, 2]).bytesValue == [1, 2])
        #expect(Value.strings(["a"]).bytesValue == nil)
        #expect(Value.array([1, "a"]).arrayValue == [1, "a"])
        #expect(Value.strings(["a"]).arrayValue == ["a"])
        #expect(Value.bytes([1]).arrayValue == nil)
    }

    @Test("a literal list of strings is a list of strings, as other programs expect it")
    func literals() {
        #expect(["a", "b"] as Value == .strings(["a", "b"]))
        #expect(["a", 1] as Value == .array([.string("a"), .int(1)]))
        #expect([] as Value == .array([]))
        #expect([["a"], []] as Value == .array([.strings(["a"]), .array([])]))
        #expect(["key": ["a"]] as Value == .dictionary(["key": .strings(["a"])]))
    }

    @Test("a test of a delegate can make messages and errors")
    func made() {
        let message = ReceivedMessage(sender: "org.example.Other", name: "greet", payload: ["word": "hello"])
        #expect(message.payload["word"]?.stringValue == "hello")
        let error = ApplicationError(name: ApplicationError.Name.tooLarge, message: "too much")
        #expect(error.description == "org.appstate1.Error.TooLarge: too much")
    }

    @Test("each value of the D-Bus API has a name")
    func names() {
        typealias Reason = LaunchOptions.Reason
        #expect(
            [
                Reason.user, Reason.url, Reason.activity, Reason.message, Reason.transfer, Reason.restore,
                Reason.time, Reason.network, Reason.power,
            ] == LaunchReason.allCases.map(\.rawValue))
        typealias End = LaunchOptions.ExitReason
        #expect(
            [
                End.exited, End.crashed, End.killed, End.outOfMemory, End.reclaimed, End.terminated,
                End.forceQuit, End.unresponsive, End.rebooted, End.unknown, End.unregistered,
            ] == ExitReason.allCases.map(\.rawValue))
        typealias State = LaunchOptions.PreviousState
        #expect(
            [State.notRunning, State.inactive, State.active, State.background, State.suspended]
                == LifeCycleState.allCases.map(\.rawValue))
        typealias Name = ApplicationError.Name
        #expect(
            [
                Name.noSuchApplication, Name.noSuchProcess, Name.alreadyRegistered, Name.notDelegate,
                Name.noSuchTask, Name.notSuspendable, Name.notInForeground, Name.noSessionAgent,
                Name.tooLarge,
                Name.accessDenied, Name.invalidArgs, Name.limitsExceeded, Name.notSupported, Name.failed,
            ] == ErrorName.allCases.map(\.rawValue))
        let options = LaunchOptions(["reason": "url", "exit-reason": "reclaimed"])
        #expect(options.reason == Reason.url && options.exitReason == End.reclaimed)
    }
}
