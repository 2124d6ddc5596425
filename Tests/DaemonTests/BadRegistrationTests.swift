import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// Invalid registrations: each gets its own named error, and nothing changes.
@Suite(
    "Registrations that are refused",
    .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct BadRegistrationTests {
    /// Calls Register as the test's own user, with a number that need not be the pid of a process.
    private func register(
        _ client: Client, _ id: String, _ pid: UInt32, _ options: [(String, Variant)] = []
    ) throws {
        try client.manager("Register") { message in
            try message.append(id)
            try message.append(pid)
            try message.appendDictionary(options)
        }
    }

    @Test("registering a pid without a process gives NoSuchProcess, whatever the number")
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

    @Test("registering a zombie gives NoSuchProcess, because it has ended")
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
        "registering another user's process gives AccessDenied, whether or not it is registered already",
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
        // The daemon checks the right to register before it checks whether the process is registered.
        try stage.refuses(.alreadyRegistered, "one's own") {
            try stage.client.register("org.example.App", stage.process.pid)
        }
    }

    @Test(
        "root may register another user's process, and the application belongs to that user",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func rootForAnother() throws {
        let stage = try Stage()
        let nobody = try App(stage.daemon.bus, uid: App.nobody)
        let path = try stage.client.register("org.example.App", nobody.pid)
        #expect(try stage.client.property(path, "UID") == .uint32(App.nobody))
        #expect(try nobody.manager("GetApplicationByPID u:\(nobody.pid)") == path)
    }

    @Test(
        "registering init, a kernel thread or a process with the rights of two users gives InvalidArgs",
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

    @Test("registering the daemon's own process gives InvalidArgs")
    func daemonItself() throws {
        let stage = try Stage()
        try stage.refuses(.invalidArgs, "the daemon") {
            try stage.client.register("org.example.App", stage.daemon.process.pid)
        }
    }

    @Test(
        "an app_id that is empty, too long or not a valid desktop entry id gives InvalidArgs",
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

    @Test("an app_id of 255 letters is accepted")
    func longestID() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        let id = String(repeating: "a", count: 255)
        let path = try stage.client.register(id, child.pid)
        #expect(try stage.client.property(path, "ID") == .string(id))
    }

    @Test("a delegate that is not a connection of the process gives AccessDenied")
    func strangeDelegate() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        // The test is the child's parent, not its descendant.
        try stage.refuses(.accessDenied, "delegate of another process") {
            try stage.client.register("org.example.App", child.pid, [("delegate", .bool(true))])
        }
    }

    @Test(
        "a process that gave up root after it connected gets AccessDenied if it wants to be its own delegate",
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

    @Test("a descriptor that is not a pidfd gives InvalidArgs, a pidfd of an ended process NoSuchProcess")
    func descriptors() throws {
        let stage = try Stage()
        let pipe = try PipeEnds()
        try stage.refuses(.invalidArgs, "a pipe") {
            try stage.client.registerProcess("org.example.App", pipe.read)
        }
        do {
            try stage.client.registerProcess("org.example.App", pipe.read)
            Issue.record("a pipe was registered")
        } catch let failure as BusFailure {
            #expect(failure.message == "The descriptor passed is not a pidfd")
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
        "a pidfd of another user's process gives AccessDenied, although the caller has passed it",
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
