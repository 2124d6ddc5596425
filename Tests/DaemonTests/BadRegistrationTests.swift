import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// Registrations that make no sense: each gets its error by name, and nothing changes.
@Suite(
    "Registrations that are refused",
    .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct BadRegistrationTests {
    /// Register as the test's own user, with a number that need not be one of a process.
    private func register(
        _ client: Client, _ id: String, _ pid: UInt32, _ options: [(String, Variant)] = []
    ) throws {
        try client.manager("Register") { message in
            try message.append(id)
            try message.append(pid)
            try message.appendDictionary(options)
        }
    }

    @Test("an unknown process is NoSuchProcess, whatever its number looks like")
    func unknownProcess() throws {
        let stage = try Stage()
        let gone = try Child("true")
        try gone.waitForExit()
        for pid in [UInt32(gone.pid), UInt32(Int32.max), 1 << 31, .max] {
            try stage.refuses(.noSuchProcess, "pid \(pid)") {
                try register(stage.client, "org.example.App", pid)
            }
        }
    }

    @Test("a thread that does not lead its process is NoSuchProcess")
    func thread() throws {
        let stage = try Stage()
        let threads = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/task")
        let other = try #require(threads.compactMap { UInt32($0) }.first { $0 != UInt32(getpid()) })
        try stage.refuses(.noSuchProcess, "thread \(other)") {
            try register(stage.client, "org.example.App", other)
        }
    }

    @Test("a zombie is NoSuchProcess: it has ended")
    func zombie() throws {
        let stage = try Stage()
        let child = try Child("true")
        var info = siginfo_t()
        waitid(P_PID, id_t(child.pid), &info, WEXITED | WNOWAIT)
        try stage.refuses(.noSuchProcess, "a zombie") {
            try stage.client.register("org.example.App", child.pid)
        }
    }

    @Test(
        "another user's process is AccessDenied, registered already or not",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func anothersProcess() throws {
        let stage = try Stage()
        let nobody = try App(stage.daemon.bus, uid: App.nobody)
        let free = try Child("sleep", ["1000"])
        for (pid, what) in [
            (free.pid, "root's"), (stage.process.pid, "root's, which is registered"), (1, "init"),
        ] {
            try stage.refuses(.accessDenied, what) {
                try nobody.manager("Register s:org.example.App u:\(pid) {}")
            }
        }
        // The right to register comes before the question whether it is registered.
        try stage.refuses(.alreadyRegistered, "one's own") {
            try stage.client.register("org.example.App", stage.process.pid)
        }
    }

    @Test(
        "root may register another user's process, and it is that user's",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func rootForAnother() throws {
        let stage = try Stage()
        let nobody = try App(stage.daemon.bus, uid: App.nobody)
        let path = try stage.client.register("org.example.App", nobody.pid)
        #expect(try stage.client.property(path, "UID") == .uint32(App.nobody))
        #expect(try nobody.manager("GetApplicationByPID u:\(nobody.pid)") == path)
    }

    @Test(
        "init, a kernel thread and a process with the rights of two users are InvalidArgs",
        .enabled(if: TestDaemon.canBeOthers, "only root may ask for them: others are denied before"))
    func processesThatAreNoApplications() throws {
        let stage = try Stage()
        try stage.refuses(.invalidArgs, "pid 1") { try stage.client.register("org.example.App", 1) }

        let proc = Proc()
        let kernel = try proc.processes().first { (try? proc.stat($0))?.isKernelThread == true }
        if let kernel {
            try stage.refuses(.invalidArgs, "kernel thread \(kernel)") {
                try stage.client.register("org.example.App", kernel)
            }
        }
        let mixed = try Child(
            "setpriv", ["--ruid=\(App.nobody)", "--", "sh", "-p", "-c", "echo ready; exec sleep 1000"])
        try mixed.waitForLine(containing: "ready")
        try stage.refuses(.invalidArgs, "one with the rights of two users") {
            try stage.client.register("org.example.App", mixed.pid)
        }
    }

    @Test("the daemon's own process is InvalidArgs")
    func daemonItself() throws {
        let stage = try Stage()
        try stage.refuses(.invalidArgs, "the daemon") {
            try stage.client.register("org.example.App", stage.daemon.process.pid)
        }
    }

    @Test(
        "an app_id that is empty, too long, or not of the letters of a desktop entry's id is InvalidArgs",
        arguments: [
            "", "org/example", String(repeating: "a", count: 300), String(repeating: "a", count: 256),
            "org example",
            "orgé", "org\nexample", "*", "..//",
        ])
    func applicationID(_ id: String) throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        try stage.refuses(.invalidArgs, "app_id \(id)") { try stage.client.register(id, child.pid) }
    }

    @Test("an app_id of 255 letters is taken")
    func longestID() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        let id = String(repeating: "a", count: 255)
        let path = try stage.client.register(id, child.pid)
        #expect(try stage.client.property(path, "ID") == .string(id))
    }

    @Test("a second registration of the same process is AlreadyRegistered, by number or by pidfd")
    func again() throws {
        let stage = try Stage()
        try stage.refuses(.alreadyRegistered, "by number") {
            try stage.client.register("org.example.Other", stage.process.pid)
        }
        let descriptor = try PidFD(pid: stage.process.pid)
        try stage.refuses(.alreadyRegistered, "by pidfd") {
            try stage.client.registerProcess("org.example.Other", descriptor.rawValue)
        }
    }

    @Test("a delegate that is none of the process's connections is AccessDenied")
    func strangeDelegate() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        // The test is the child's parent, not its descendant.
        try stage.refuses(.accessDenied, "delegate of another process") {
            try stage.client.register("org.example.App", child.pid, [("delegate", .bool(true))])
        }
    }

    @Test(
        "a process that gave up root after it connected cannot be its own delegate: AccessDenied",
        .enabled(if: TestDaemon.canBeOthers, "needs root"))
    func changedUser() throws {
        let stage = try Stage()
        let app = try App(stage.daemon.bus)
        try app.ask("setuid \(App.nobody)")
        try stage.refuses(.accessDenied, "delegate of another user's process") { _ = try app.register() }
        let path = try app.register("org.example.Actor", "delegate=b:false")
        #expect(try stage.client.property(path, "UID") == .uint32(App.nobody))
    }

    // MARK: Pidfds

    @Test("what is no pidfd is InvalidArgs; a pidfd of a process that has ended is NoSuchProcess")
    func descriptors() throws {
        let stage = try Stage()
        let pipe = try PipeEnds()
        try stage.refuses(.invalidArgs, "a pipe") {
            try stage.client.registerProcess("org.example.App", pipe.read)
        }
        let child = try Child("true")
        let descriptor = try PidFD(pid: child.pid)
        var info = siginfo_t()
        waitid(P_PID, id_t(child.pid), &info, WEXITED | WNOWAIT)
        try stage.refuses(.noSuchProcess, "a zombie's pidfd") {
            try stage.client.registerProcess("org.example.App", descriptor.rawValue)
        }
        try child.waitForExit()
        try stage.refuses(.noSuchProcess, "the pidfd of one that is gone") {
            try stage.client.registerProcess("org.example.App", descriptor.rawValue)
        }
    }

    @Test(
        "another user's pidfd is AccessDenied, though it was passed",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func anothersDescriptor() throws {
        let stage = try Stage()
        let nobody = try App(stage.daemon.bus, uid: App.nobody)
        let child = try Child("sleep", ["1000"])
        try stage.refuses(.accessDenied, "root's pidfd") {
            try nobody.manager("RegisterProcess s:org.example.App h:\(child.pid) {}")
        }
    }
}
