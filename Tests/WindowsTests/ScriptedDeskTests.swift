import Testing

@testable import Windows

/// What KWin's script may send, and what it means.
@Suite("Reports of KWin's script")
struct ScriptedDeskTests {
    private func desk(_ json: String) throws -> ScriptedDesk {
        var desk = ScriptedDesk()
        try desk.take(json.utf8)
        return desk
    }

    @Test("desktops, minimized windows, the shown desktop and panels are taken into account")
    func meaning() throws {
        var desk = try desk(
            #"""
            [[1,10,"Alpha","a\u00e9",true,false,false,true,false], [2,10,"Beta","",false,true,false,true,false],
             [3,11,"Gamma","",false,false,false,false,false], [4,12,"Delta","",false,false,true,true,false],
             [5,13,"Panel","",false,false,true,false,true], [6,0,"Epsilon","",false,false,false,true,true]]
            """#)
        #expect(
            desk.windows.map(\.picture) == [
                "Alpha focused", "Beta minimized", "Gamma hidden", "Delta", "Panel", "Epsilon",
            ])
        #expect(desk.windows.map(\.process) == [10, 10, 11, 12, 13, nil])
        #expect(desk.windows.first?.title == "aé")
        #expect(desk.fixtures == [13])
        desk.isShown = true
        #expect(
            desk.windows.map(\.picture) == [
                "Alpha hidden", "Beta minimized", "Gamma hidden", "Delta hidden", "Panel", "Epsilon",
            ])
        desk.isShown = false
        #expect(desk.windows.first?.focused == true)
    }

    @Test("too many windows and invalid numbers are left out, texts that are too long are cut")
    func bounds() throws {
        let long = String(repeating: "ä", count: 1_000)
        let rows = (0..<2_000).map { number in
            let number = number == 1 ? 1 << 48 : number == 2 ? -1 : number
            return "[\(number),\(number == 3 ? 1 << 40 : 8),\"App\",\"\(long)\",false,false,false,true,false]"
        }
        let windows = try desk("[\(rows.joined(separator: ","))]").windows
        #expect(windows.count == ObservedWindow.mostWindows)
        #expect(windows.prefix(3).map(\.number) == [0, 3, 4])
        #expect(windows.prefix(3).map(\.process) == [8, nil, 8])
        #expect(windows.allSatisfy { $0.visible && $0.appID == "App" && $0.title.utf8.count == 254 })
    }

    @Test(
        "anything but a list of windows is refused",
        arguments: [
            "", "null", "{}", "[[]]", "[[1]]", "[[1,2,\"\",\"\"]]", "[[1,2,\"\",\"\",true,true,true,true]]",
            "[[1,2,\"\",\"\",true,true,true,true,true,true]]", "[[1.5,2,\"\",\"\",true,true,true,true,true]]",
            "[[1,2,\"\",\"\",true,true,true,true,1]]", "[[1,2,null,\"\",true,true,true,true,true]]", "[] []",
        ])
    func nonsense(_ text: String) throws {
        var desk = try desk(#"[[1,10,"Alpha","",true,false,false,true,false]]"#)
        #expect(throws: ScriptedDesk.Unreadable.self) { try desk.take(text.utf8) }
        #expect(desk.windows.map(\.number) == [1])
    }
}
