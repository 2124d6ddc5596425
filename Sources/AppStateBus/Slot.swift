import CSystemd

/// Something that a bus keeps for us: an object, a match, a filter, a pending call. It ends with `cancel()` or when it
/// is released, even from within its own handler.
///
/// The slot keeps its handlers. A handler that retains the owner of its slot keeps both alive until `cancel()`.
public final class Slot {
    private var pointer: OpaquePointer?

    /// Takes over the only reference to `pointer`. libsystemd calls `destroy` with its userdata when it frees the slot,
    /// which is after the handler that removed it has returned.
    init(_ pointer: OpaquePointer, destroy: @escaping sd_bus_destroy_t) {
        self.pointer = pointer
        sd_bus_slot_set_destroy_callback(pointer, destroy)
    }

    deinit {
        cancel()
    }

    /// Removes it from the bus; its handler is not called again.
    public func cancel() {
        guard let pointer else { return }
        self.pointer = nil
        sd_bus_slot_unref(pointer)
    }

    /// Creates a slot whose userdata is `context`. The slot owns `context` from then on.
    static func make(
        owning context: AnyObject?, _ operation: String, _ subject: @autoclosure () -> String,
        _ add: (inout OpaquePointer?, UnsafeMutableRawPointer?) -> Int32
    ) throws(BusFailure) -> Slot {
        Slot(try made(owning: context, operation, subject(), add)) { userdata in
            guard let userdata else { return }
            Unmanaged<AnyObject>.fromOpaque(userdata).release()
        }
    }
}

/// An object that libsystemd has created with `context` as its userdata. It must release `context` when it is freed.
func made(
    owning context: AnyObject?, _ operation: String, _ subject: @autoclosure () -> String,
    _ add: (inout OpaquePointer?, UnsafeMutableRawPointer?) -> Int32
) throws(BusFailure) -> OpaquePointer {
    let owned = context.map { Unmanaged.passRetained($0) }
    var made: OpaquePointer?
    let result = add(&made, owned?.toOpaque())
    guard result >= 0, let made else {
        owned?.release()
        throw BusFailure(operation: operation, subject: subject(), errno: -result)
    }
    return made
}

/// The object behind a callback's userdata. libsystemd's object keeps it alive.
final class Context<Value> {
    var value: Value

    init(_ value: Value) {
        self.value = value
    }

    static func at(_ userdata: UnsafeMutableRawPointer) -> Context {
        Unmanaged<Context>.fromOpaque(userdata).takeUnretainedValue()
    }
}
