import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import Systemd
import TestSupport
import Testing

@testable import appstate_session

/// The commands of a user's rules, before an application is suspended and after it.
@Suite("Commands of rules", .serialized)
struct SuspendCommandsTests {
    private final class Scene {
        let loop: EventLoop
        let log = NSTemporaryDirectory() + "commands.\(UUID().uuidString)"
        private final class Told { var exempt: Set<Int32> = [] }
        private let told = Told()
        let commands: SuspendCommands
        var exempt: Set<Int32> { told.exempt }

        init(limit: UInt64 = 300_000_000, settling: UInt64 = 0) throws {
            loop = try EventLoop()
            commands = try SuspendCommands(
                loop: loop, journal: Journal(identifier: "test"), limit: limit, settling: settling
            ) { [told] in told.exempt = $0 }
        }

        func apply(suspend: String?, resume: String? = nil) {
            commands.apply([
                7: SuspendCommands.Commands(id: "org.example.A", suspend: suspend, resume: resume)
            ])
        }

        func learn(_ states: [Int32: LifeCycleState]) {
            var applications = Applications()
            for (pid, state) in states {
                applications.add(Applications.Entry(name: "\(pid)", path: "/\(pid)"), pid)
                applications.move(pid, to: state)
            }
            commands.learn(applications)
        }

        func wait(_ what: String, _ isSo: () throws -> Bool) throws {
            try loop.run(what, until: isSo)
        }

        var lines: [String] {
            ((try? String(contentsOfFile: log, encoding: .utf8)) ?? "").split(separator: "\n").map(
                String.init)
        }

        deinit { unlink(log) }
    }

    @Test("ExecSuspend= runs in the background before each suspension, ExecResume= after it")
    func order() throws {
        let scene = try Scene()
        scene.apply(
            suspend: "echo suspend $APPSTATED_ID $APPSTATED_PID >> \(scene.log)",
            resume: "echo resume $APPSTATED_ID $APPSTATED_PID >> \(scene.log)")
        scene.learn([7: .active, 8: .background])
        #expect(scene.exempt == [7])
        for round in 1...2 {
            scene.learn([7: .background, 8: .background])
            try scene.wait("the command") { scene.exempt.isEmpty }
            #expect(scene.lines.last == "suspend org.example.A 7" && scene.lines.count == 2 * round - 1)
            scene.learn([7: .suspended])
            scene.learn([7: .active])
            #expect(scene.exempt == [7])
            try scene.wait("the other command") { scene.lines.count == 2 * round }
            #expect(scene.lines.last == "resume org.example.A 7")
        }
    }

    @Test("ExecResume= runs after the end of the rule or registration, but not after the process's end")
    func owed() throws {
        let scene = try Scene()
        func begin() throws {
            scene.apply(suspend: "echo S >> \(scene.log)", resume: "echo R >> \(scene.log)")
            scene.learn([7: .background])
            try scene.wait("the command") { scene.exempt.isEmpty }
            scene.learn([7: .suspended])
        }
        try begin()
        // For example, because the power source changed.
        scene.commands.apply([:])
        scene.learn([7: .background])
        try scene.wait("the rule's last command") { scene.lines == ["S", "R"] && scene.commands.isAtRest }

        // Unregistered by another process.
        try begin()
        scene.learn([7: .notRunning])
        #expect(scene.commands.isAtRest)
        scene.commands.release(7)
        scene.learn([:])
        try scene.wait("the registration's last command") {
            scene.lines == ["S", "R", "S", "R"] && scene.commands.isAtRest
        }

        // Ended: its pid may belong to another process now.
        try begin()
        scene.learn([7: .notRunning])
        scene.learn([:])
        #expect(scene.commands.isAtRest)
        #expect(scene.lines == ["S", "R", "S", "R", "S"])
    }
}
