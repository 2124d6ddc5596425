import TestSupport
import Testing
import Windows

/// KWin's protocol with a server that is not KWin.
@Suite("KWin's protocol, at its boundaries", .serialized)
struct PlasmaBoundaryTests {
    private static let management = "org_kde_plasma_window_management"

    @Test(
        "the newest version is bound that the observer knows and in which the number of windows is not limited",
        arguments: [(9, 9), (10, 10), (11, 10), (16, 10), (17, 17), (20, 17)])
    func version(_ offered: Int, _ bound: Int) throws {
        let compositor = try BareCompositor(globals: [Self.management: UInt32(offered)])
        let observer = try PlasmaObserver(display: compositor.display)
        #expect(observer.windows == [])
        #expect(compositor.bound(Self.management) == UInt32(bound))
    }

    @Test("a server that disconnects clients of the protocol is unsupported: another way may exist")
    func refused() throws {
        let compositor = try BareCompositor(globals: [Self.management: 16], refusing: [Self.management])
        guard case .unsupported(let why)? = Self.failure(compositor.display) else {
            Issue.record("it is not unsupported")
            return
        }
        #expect(why.contains("does not list its windows"))
    }

    @Test(
        "an agent that can no longer watch a server that still answers exits so that it is started again",
        .enabled(if: Station.isAvailable, Station.whatIsMissing))
    func lost() throws {
        let compositor = try BareCompositor(globals: [Self.management: 17])
        let station = try Station()
        try station.startAgent(environment: compositor.environment)
        compositor.forget()
        #expect(try station.agent?.waitForExit() == .exited(1))
        let said = station.agent?.errors ?? ""
        #expect(said.contains("can no longer be watched"), "\(said)")
    }

    private static func failure(_ display: String) -> ObserverFailure? {
        do throws(ObserverFailure) {
            _ = try PlasmaObserver(display: display)
            return nil
        } catch {
            return error
        }
    }
}
