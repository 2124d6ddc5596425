import Linux

/// A node of the tree that GET_TREE returns: sway-ipc(7), i3's IPC interface.
struct TreeNode {
    var id: Int64 = 0
    var type = ""
    var name = ""
    var layout = ""
    /// The ids of its children, the most recently focused first.
    var focus: [Int64] = []
    var focused = false
    /// For windows of sway; i3 has no such field.
    var visible: Bool?
    /// For windows of sway.
    var pid: Int32?
    var appID = ""
    /// The X11 window: of i3's windows, and of sway's Xwayland windows.
    var window: UInt32?
    var windowClass = ""
    /// Tiled children, then floating ones.
    var nodes: [TreeNode] = []
    var floating: [TreeNode] = []

    /// - Throws: if the text is not JSON, or a node does not have the documented structure.
    init(_ bytes: [UInt8]) throws(JSONReader.Failure) {
        var json = JSONReader(bytes)
        try self.init(&json)
        try json.end()
    }

    /// The window that has got another title, as it is now; nil: the event reports another change.
    ///
    /// - Parameter event: the payload of an event about a window.
    /// - Throws: as `init`.
    static func retitled(by event: [UInt8]) throws(JSONReader.Failure) -> TreeNode? {
        var json = JSONReader(event)
        var isTitle = false
        var window: TreeNode?
        try json.object { key, json throws(JSONReader.Failure) in
            switch key {
            case "change": isTitle = try json.string() == "title"
            case "container": window = try TreeNode(&json)
            default: try json.skip()
            }
        }
        try json.end()
        return isTitle ? window : nil
    }

    private init(_ json: inout JSONReader) throws(JSONReader.Failure) {
        try json.beginObject()
        while let key = try json.nextKey() {
            switch key {
            case "id": id = try json.integer()
            case "type": type = try json.string()
            case "name": name = try json.text()
            case "layout": layout = try json.string()
            case "focused": focused = try json.bool()
            case "visible": visible = try json.bool()
            case "pid": pid = Int32(exactly: try json.integer())
            case "app_id": appID = try json.text()
            case "window": window = try json.null() ? nil : UInt32(exactly: try json.integer())
            case "focus":
                try json.beginArray()
                while try json.nextElement() { focus.append(try json.integer()) }
            case "window_properties": try readProperties(&json)
            case "nodes": nodes = try Self.list(&json)
            case "floating_nodes": floating = try Self.list(&json)
            default: try json.skip()
            }
        }
    }

    private mutating func readProperties(_ json: inout JSONReader) throws(JSONReader.Failure) {
        if try json.null() { return }
        try json.beginObject()
        while let key = try json.nextKey() {
            if key == "class" { windowClass = try json.text() } else { try json.skip() }
        }
    }

    private static func list(_ json: inout JSONReader) throws(JSONReader.Failure) -> [TreeNode] {
        var list: [TreeNode] = []
        try json.array { json throws(JSONReader.Failure) in list.append(try TreeNode(&json)) }
        return list
    }
}

extension TreeNode {
    /// A window, and the effect of the containers around it.
    struct View {
        let node: TreeNode
        /// No container around it hides it. i3 does not report whether a full-screen window covers it; in
        /// that case it counts as visible.
        let isShown: Bool
        let isInScratchpad: Bool
        /// A panel, in one of i3's places for panels.
        let isFixture: Bool
    }

    /// The name of the workspace that contains the hidden windows of the scratchpad.
    private static let scratchpad = "__i3_scratch"

    /// The type of the containers of panels.
    private static let dockArea = "dockarea"

    /// All windows, tiled before floating ones.
    var views: [View] {
        var views: [View] = []
        collect(into: &views, isShown: true, isInScratchpad: false, isFixture: false)
        return views
    }

    private func collect(into views: inout [View], isShown: Bool, isInScratchpad: Bool, isFixture: Bool) {
        let isInScratchpad = isInScratchpad || type == "workspace" && name == Self.scratchpad
        let isFixture = isFixture || type == Self.dockArea
        if nodes.isEmpty, floating.isEmpty, isWindow {
            views.append(
                View(
                    node: self, isShown: visible ?? isShown, isInScratchpad: isInScratchpad,
                    isFixture: isFixture))
            return
        }
        for child in nodes {
            child.collect(
                into: &views, isShown: isShown && shows(child), isInScratchpad: isInScratchpad,
                isFixture: isFixture)
        }
        for child in floating {
            child.collect(
                into: &views, isShown: isShown, isInScratchpad: isInScratchpad, isFixture: isFixture)
        }
    }

    private var isWindow: Bool { pid != nil && type != "root" || window != nil }

    /// Of workspaces, and of tabs and stacks, only the most recently focused one is visible.
    private func shows(_ child: TreeNode) -> Bool {
        let showsOne = child.type == "workspace" || layout == "tabbed" || layout == "stacked"
        return !showsOne || focus.first == child.id || focus.isEmpty
    }
}
