import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

extension Client {
    // MARK: The Manager

    @discardableResult
    func manager(_ member: String, _ body: (borrowing Message) throws -> Void = { _ in }) throws -> Message {
        try call(BusNames.root, BusNames.manager, member, body)
    }

    @discardableResult
    func reporter(_ member: String, _ body: (borrowing Message) throws -> Void = { _ in }) throws -> Message {
        try call(BusNames.root, BusNames.reporter, member, body)
    }

    @discardableResult
    func registerProcess(
        _ id: String, _ descriptor: Int32, _ options: [(String, Variant)] = []
    ) throws -> String {
        try manager("RegisterProcess") { message in
            try message.append(id)
            try message.append(descriptor: descriptor)
            try message.appendDictionary(options)
        }.readObjectPath()
    }

    /// One line for each application: path, id, pid, uid, state.
    func list() throws -> [String] {
        let reply = try manager("ListApplications")
        var rows: [String] = []
        try reply.withEntered(.array, "(osuus)") {
            while !reply.atEnd {
                try reply.withEntered(.struct, "osuus") {
                    rows.append(
                        "\(try reply.readObjectPath()) \(try reply.readString()) \(try reply.readUInt32()) "
                            + "\(try reply.readUInt32()) \(try reply.readString())")
                }
            }
        }
        return rows
    }

    func application(ofPID pid: Int32) throws -> String {
        try manager("GetApplicationByPID") { try $0.append(UInt32(pid)) }.readObjectPath()
    }

    /// Everything there is to see, as text. It must be the same after a call that was refused.
    func picture() throws -> [String] {
        let rows = try list()
        let focused = try property(BusNames.root, BusNames.manager, "FocusedApplication")
        let explanations = try rows.flatMap { row in
            let path = String(row.prefix { $0 != " " })
            return try explain(path).map { "\(row) \($0.key)=\($0.value)" }.sorted()
        }
        return rows + explanations + ["focused: \(focused)"]
    }

    // MARK: Applications

    func listObjections(_ path: String) throws -> [String] {
        try call(path, BusNames.application, "ListObjections").readStrings()
    }

    func terminate(_ path: String, force: Bool = false) throws {
        try call(path, BusNames.application, "Terminate") { try $0.append(force) }
    }

    func property(_ path: String, _ name: String) throws -> Variant {
        try property(path, BusNames.application, name)
    }

    /// `SuspendHolds`, each as `reason holder`.
    func holds(_ path: String) throws -> [String] {
        guard case .array(_, let rows) = try property(path, "SuspendHolds") else { return [] }
        return rows.map { row in
            guard case .structure(let members) = row, members.count == 2,
                case .string(let reason) = members[0], case .string(let holder) = members[1]
            else { return "\(row)" }
            return "\(reason) \(holder)"
        }
    }

    // MARK: What it was sent

    /// Receives all that has been sent to it, and forgets it.
    func catchUp() throws {
        try settle()
        forget()
    }

    /// The signals of one application object, in order: an edge as `from→to`, any other by its name.
    func story(of path: String) -> [String] {
        signals(of: path).map { signal in
            signal.member == "StateChanged" && signal.arguments.count > 1
                ? "\(signal.arguments[0])→\(signal.arguments[1])" : signal.member
        }
    }

    /// The reasons of one application's edges, in order.
    func reasons(of path: String) -> [String] {
        signals(of: path).filter { $0.member == "StateChanged" }.compactMap(\.arguments.last)
    }

    /// Waits until the application has been removed; returns the exit reason.
    @discardableResult
    func waitForRemoval(of path: String) throws -> String {
        func removal() -> Received? {
            received.last { $0.member == "ApplicationRemoved" && $0.arguments.first == path }
        }
        try wait("the removal of \(path)") { removal() != nil }
        return removal()?.arguments.last ?? ""
    }

    /// Waits for a signal of the application's interface.
    func wait(for path: String, toSay member: String) throws {
        try wait("\(member) of \(path)") { signals(of: path).contains { $0.member == member } }
    }
}

extension Client {
    /// Waits until a connection has left the bus because of what `act` does. The daemon is notified of that before it
    /// gets any later call of this client.
    func waitForDeparture(of name: String, after act: () throws -> Void) throws {
        var hasLeft = false
        let match = try bus.match(
            "type='signal',sender='org.freedesktop.DBus',member='NameOwnerChanged',arg0='\(name)',arg2=''",
            failed: { Issue.record("\($0)") }, handler: { _ in hasLeft = true })
        // After this the rule is in force, because the bus handles messages in order.
        try settle()
        try act()
        try wait("the departure of \(name)") { hasLeft }
        match.cancel()
    }
}

extension Child {
    /// Waits until it is stopped by a signal, and leaves its status to be waited for.
    func waitUntilStopped() {
        var info = siginfo_t()
        while waitid(P_PID, id_t(pid), &info, WSTOPPED | WNOWAIT) < 0, errno == EINTR {}
    }
}

extension Bus {
    /// Whether this name has an owner.
    func hasOwner(_ name: String) throws -> Bool {
        let question = try newCall(
            destination: "org.freedesktop.DBus", path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus", member: "NameHasOwner")
        try question.append(name)
        return try call(question).readBool()
    }
}

extension Client {
    /// Sends the daemon a signal that only the bus should send: that a name has another owner.
    func tell(of name: String, from old: String, to new: String) throws {
        let signal = try bus.newSignal(
            path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus", member: "NameOwnerChanged",
            to: BusNames.service)
        for word in [name, old, new] { try signal.append(word) }
        try bus.send(signal)
        try settle()
    }
}
