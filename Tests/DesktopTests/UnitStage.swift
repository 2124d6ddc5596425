import AppStateBus
import Desktop
import Foundation
import TestSupport
import Testing

/// A real service manager, and what starts programs as its units.
class UnitStage {
    let manager: UserManager
    let scratch: Scratch
    let loop: EventLoop
    let bus: Bus
    let starter: ProgramStarter

    init() throws {
        manager = try UserManager()
        scratch = try Scratch()
        loop = try EventLoop()
        let bus = try Bus.open(address: manager.address)
        try bus.attach(to: loop)
        self.bus = bus
        starter = ProgramStarter(
            loop: loop, bus: bus, executable: try #require(StartTests.actor), directory: scratch.path)
    }

    func turn(until condition: () throws -> Bool) throws {
        let holds = try eventually {
            if try condition() { return true }
            _ = try loop.runOnce(timeout: 50_000)
            return try condition()
        }
        #expect(holds, "\(manager.log)")
    }
}
