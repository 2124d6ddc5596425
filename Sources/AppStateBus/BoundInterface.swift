import CSystemd
import Glibc

/// An interface on a bus: its rows in the form that libsystemd needs, and the data that callbacks refer to.
///
/// libsystemd reads the vtable and its strings for as long as the slot lives, so the slot owns the registration and
/// releases it when libsystemd frees the slot. A callback finds its row by the offset in the vtable: userdata is the
/// address of the first row, and libsystemd adds the offset.
final class BoundInterface {
    /// What userdata points to in a callback.
    struct Row {
        let registration: Unmanaged<BoundInterface>
        let index: Int
    }

    let interface: Interface
    let find: ((String) throws(MethodError) -> Bool)?
    let complain: (String) -> Void
    let vtable: UnsafeMutablePointer<sd_bus_vtable>
    let rows: UnsafeMutablePointer<Row>
    private var strings: [UnsafeMutablePointer<CChar>] = []

    init(
        _ interface: Interface, find: ((String) throws(MethodError) -> Bool)? = nil,
        _ complain: @escaping (String) -> Void
    ) {
        self.interface = interface
        self.find = find
        self.complain = complain
        let count = interface.methods.count + interface.properties.count + interface.signals.count + 2
        vtable = .allocate(capacity: count)
        // Unused parts of a row must be zero: sd_bus_add_object_vtable(3).
        memset(vtable, 0, count * MemoryLayout<sd_bus_vtable>.stride)
        // One more than there are handlers, so that an interface that has only signals has an address, too.
        let handlers = interface.methods.count + interface.properties.count + 1
        rows = .allocate(capacity: handlers)
        for index in 0..<handlers {
            (rows + index).initialize(to: Row(registration: Unmanaged.passUnretained(self), index: index))
        }
        fill()
    }

    deinit {
        rows.deallocate()
        vtable.deallocate()
        for string in strings {
            free(string)
        }
    }

    /// The registration behind a userdata that libsystemd passed to a callback.
    static func row(_ userdata: UnsafeMutableRawPointer) -> (registration: BoundInterface, index: Int) {
        let row = userdata.assumingMemoryBound(to: Row.self).pointee
        return (row.registration.takeUnretainedValue(), row.index)
    }

    /// Adds the registration to a bus.
    ///
    /// - Parameter add: calls libsystemd with the vtable and the userdata.
    consuming func slot(
        _ path: String,
        _ add: (inout OpaquePointer?, UnsafePointer<sd_bus_vtable>, UnsafeMutableRawPointer) -> Int32
    ) throws(BusFailure) -> Slot {
        var slot: OpaquePointer?
        let result = add(&slot, vtable, rows)
        guard result >= 0, let slot else {
            throw BusFailure(operation: "add \(interface.name)", subject: "at \(path)", errno: -result)
        }
        _ = Unmanaged.passRetained(self)
        return Slot(slot) { userdata in
            guard let userdata else { return }
            userdata.assumingMemoryBound(to: Row.self).pointee.registration.release()
        }
    }

    private func fill() {
        var row = vtable
        var handler = 0
        csystemd_vtable_start(row)
        row += 1
        for method in interface.methods {
            csystemd_vtable_method(
                row, keep(method.name), keep(method.arguments.map(\.type).joined()),
                keep(method.results.map(\.type).joined()),
                keep(names: method.arguments.map(\.name) + method.results.map(\.name)), callMethod,
                handler * MemoryLayout<Row>.stride)
            row += 1
            handler += 1
        }
        for property in interface.properties {
            csystemd_vtable_property(
                row, keep(property.name), keep(property.type), getProperty,
                handler * MemoryLayout<Row>.stride, property.changes.flags)
            row += 1
            handler += 1
        }
        for signal in interface.signals {
            csystemd_vtable_signal(
                row, keep(signal.name), keep(signal.arguments.map(\.type).joined()),
                keep(names: signal.arguments.map(\.name)))
            row += 1
        }
        csystemd_vtable_end(row)
    }

    private func keep(_ string: String) -> UnsafePointer<CChar>? {
        guard let copy = strdup(string) else { preconditionFailure("out of memory") }
        strings.append(copy)
        return UnsafePointer(copy)
    }

    /// Names in sequence, each terminated by a NUL, with an empty name at the end. strdup(3) would stop at the first
    /// NUL.
    private func keep(names: [String]) -> UnsafePointer<CChar>? {
        let bytes = names.map { $0 + "\0" }.joined() + "\0"
        let copy = bytes.withCString { memcpy(malloc(bytes.utf8.count), $0, bytes.utf8.count) }
        guard let list = copy?.assumingMemoryBound(to: CChar.self) else {
            preconditionFailure("out of memory")
        }
        strings.append(list)
        return UnsafePointer(list)
    }
}

extension Property.Changes {
    /// The vtable's flags: sd_bus_add_object_vtable(3).
    fileprivate var flags: UInt64 {
        switch self {
        case .change: csystemd_property_change()
        case .invalidation: csystemd_property_invalidation()
        case .const: csystemd_property_const()
        case .none: 0
        }
    }
}

private func callMethod(
    _ message: OpaquePointer?, _ userdata: UnsafeMutableRawPointer?,
    _ error: UnsafeMutablePointer<sd_bus_error>?
) -> Int32 {
    guard let message, let userdata else { return -EINVAL }
    let (registration, index) = BoundInterface.row(userdata)
    let method = registration.interface.methods[index]
    var answered = false
    return withUnsafeMutablePointer(to: &answered) { answered in
        let call = Call(Message(retaining: message), answered: answered, registration.complain)
        do {
            if method.limit < .max { try call.message.checkSize(atMost: method.limit) }
            try method.handler(call)
            if !answered.pointee {
                registration.complain(
                    "\(registration.interface.name).\(method.name) returned without an answer")
                call.fail(.failed("\(method.name) gave no answer"))
            }
        } catch {
            if answered.pointee {
                registration.complain(
                    "\(registration.interface.name).\(method.name) failed after its answer: \(error)")
            } else {
                call.fail(Answer.error(for: error))
            }
        }
        return 1
    }
}

private func getProperty(
    _ bus: OpaquePointer?, _ path: UnsafePointer<CChar>?, _ interface: UnsafePointer<CChar>?,
    _ property: UnsafePointer<CChar>?, _ reply: OpaquePointer?, _ userdata: UnsafeMutableRawPointer?,
    _ error: UnsafeMutablePointer<sd_bus_error>?
) -> Int32 {
    guard let path, let reply, let userdata else { return -EINVAL }
    let (registration, index) = BoundInterface.row(userdata)
    let property = registration.interface.properties[index - registration.interface.methods.count]
    do {
        try property.value(Message(retaining: reply), String(cString: path))
        return 1
    } catch let failure {
        let answer = Answer.error(for: failure)
        return sd_bus_error_set(error, answer.name, answer.message)
    }
}

/// Whether a fallback has an object at a path; the userdata of its rows is the same for all objects.
func findObject(
    _ bus: OpaquePointer?, _ path: UnsafePointer<CChar>?, _ interface: UnsafePointer<CChar>?,
    _ userdata: UnsafeMutableRawPointer?, _ found: UnsafeMutablePointer<UnsafeMutableRawPointer?>?,
    _ error: UnsafeMutablePointer<sd_bus_error>?
) -> Int32 {
    guard let path, let userdata, let found else { return -EINVAL }
    let (registration, _) = BoundInterface.row(userdata)
    guard let find = registration.find else { return 0 }
    do {
        guard try find(String(cString: path)) else { return 0 }
        found.pointee = userdata
        return 1
    } catch let failure {
        return sd_bus_error_set(error, failure.name, failure.message)
    }
}
