import Glibc
import TestSupport
import Testing

@Suite struct ChildTests {
    @Test func outputLinesAndEndingAreCaught() throws {
        let child = try Child("sh", ["-c", "echo one; echo two >&2; read x; exit 3"])
        #expect(try child.waitForLine(containing: "w") == "two")
        #expect(try child.waitForExit() == .exited(3))
        #expect(child.output == "one\n" && child.errors == "two\n")
    }

    @Test func signalsAndEnvironmentReachIt() throws {
        let pipe = try PipeEnds()
        let child = try Child(
            "sh", ["-c", "echo \"$GIVEN:${HOME-none}\"; exec cat <&9"],
            environment: ["GIVEN": "x", "HOME": nil], descriptors: [9: pipe.read])
        #expect(try child.waitForLine(containing: "x:") == "x:none")
        child.kill(SIGTERM)
        #expect(try child.waitForExit() == .signalled(SIGTERM))
    }

    @Test func whatDoesNotComeIsAnError() throws {
        let child = try Child("sh", ["-c", "echo one"])
        #expect(throws: Child.Failure.self) { try child.waitForLine(containing: "two") }
        let silent = try Child("sleep", ["1000"])
        #expect(throws: Child.Failure.self) { try silent.waitForExit(timeout: 1) }
        #expect(throws: Child.Failure.self) { try Child("/nonexistent/program") }
    }

    @Test func aChildLetGoIsKilled() throws {
        var child: Child? = try Child("sleep", ["1000"])
        let pid = try #require(child?.pid)
        #expect(kill(pid, 0) == 0)
        child = nil
        #expect(kill(pid, 0) == -1)
    }

    @Test func whatItHasLeftBehindIsKilledWithIt() throws {
        let child = try Child(
            "sh", ["-c", "trap '' TERM; sleep 1000 & echo \"left $!\"; exec true"], leadsGroup: true)
        let line = try child.waitForLine(containing: "left ")
        let pid = try #require(Int32(line.dropFirst("left ".count)))
        #expect(throws: Child.Failure.self) { try child.waitForExit(timeout: 100) }
        #expect(kill(pid, 0) == 0)
        // Returns once nobody keeps its output open.
        try child.end(patience: 100)
    }

    @Test(.enabled(if: isRoot, "only root can be another user")) func aChildMayBeAnotherUser() throws {
        let child = try Child("id", ["-u"], uid: 65_534)
        #expect(try child.waitForExit() == .exited(0))
        #expect(child.output == "65534\n")
    }
}
