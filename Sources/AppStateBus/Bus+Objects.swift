import CSystemd
import Glibc

extension Bus {
    /// Adds an interface to one object.
    ///
    /// - Returns: the slot; the interface exists for as long as it is kept.
    public func add(_ interface: Interface, at path: String) throws(BusFailure) -> Slot {
        try BoundInterface(interface, complain).slot(path) { slot, vtable, userdata in
            sd_bus_add_object_vtable(pointer, &slot, path, interface.name, vtable, userdata)
        }
    }

    /// Adds an interface to all objects below a path that `find` knows.
    ///
    /// - Parameters:
    ///   - interface: the interface; its handlers see the object's path.
    ///   - prefix: the path above the objects.
    ///   - find: whether such an object exists, for the caller that `currentSender` names. A thrown error becomes the
    ///     answer; in an enumeration (GetManagedObjects) it becomes the answer to the whole enumeration.
    public func addFallback(
        _ interface: Interface, under prefix: String,
        find: @escaping (_ path: String) throws(MethodError) -> Bool
    ) throws(BusFailure) -> Slot {
        try BoundInterface(interface, find: find, complain).slot(prefix) { slot, vtable, userdata in
            sd_bus_add_fallback_vtable(
                pointer, &slot, prefix, interface.name, vtable, findObject, userdata)
        }
    }

    /// Adds org.freedesktop.DBus.ObjectManager to a path.
    public func addObjectManager(at path: String) throws(BusFailure) -> Slot {
        try Slot.make(owning: nil, "add an object manager", "at \(path)") { slot, _ in
            sd_bus_add_object_manager(pointer, &slot, path)
        }
    }

    /// Lists the objects below a path, for introspection and GetManagedObjects.
    ///
    /// - Parameters:
    ///   - prefix: the path above the objects.
    ///   - nodes: returns the full paths below the given one, which is `prefix` or a path below it, for the caller that
    ///     `currentSender` names.
    public func addNodes(
        under prefix: String, _ nodes: @escaping (_ path: String) -> [String]
    ) throws(BusFailure) -> Slot {
        try Slot.make(owning: NodesContext(nodes), "add nodes", "under \(prefix)") { slot, userdata in
            sd_bus_add_node_enumerator(pointer, &slot, prefix, enumerateNodes, userdata)
        }
    }
}

private typealias NodesContext = Context<(String) -> [String]>

/// Gives libsystemd an array of strings. libsystemd frees the strings and the array with free(3).
private func enumerateNodes(
    _ bus: OpaquePointer?, _ prefix: UnsafePointer<CChar>?, _ userdata: UnsafeMutableRawPointer?,
    _ result: UnsafeMutablePointer<UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?>?,
    _ error: UnsafeMutablePointer<sd_bus_error>?
) -> Int32 {
    guard let prefix, let userdata, let result else { return -EINVAL }
    let nodes = NodesContext.at(userdata).value(String(cString: prefix))
    let size = MemoryLayout<UnsafeMutablePointer<CChar>?>.stride
    guard let memory = calloc(nodes.count + 1, size) else { return -ENOMEM }
    let list = memory.bindMemory(to: UnsafeMutablePointer<CChar>?.self, capacity: nodes.count + 1)
    for (index, node) in nodes.enumerated() {
        list[index] = strdup(node)
    }
    result.pointee = list
    return 0
}
