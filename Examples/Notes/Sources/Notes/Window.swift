import AppState
import CGTK
import Glibc

/// A GTK 4 window with a text in it.
@MainActor
final class Window {
    private let buffer: UnsafeMutablePointer<GtkTextBuffer>
    private let window: UnsafeMutablePointer<GtkWidget>
    /// Called when the user has changed the text.
    var edited: () -> Void = {}
    /// Called when the user has closed the window.
    var closed: () -> Void = {}
    private var isSetting = false

    init(title: String) {
        guard let view = gtk_text_view_new(), let buffer = cgtk_buffer(view),
            let window = cgtk_window(title, view)
        else { fatalError("no memory for a window") }
        (self.buffer, self.window) = (buffer, window)
        // The buffer outlives the window, because the text is also saved after the window is closed.
        g_object_ref(buffer)
        let myself = Unmanaged.passUnretained(self).toOpaque()
        cgtk_on(
            buffer, "changed", { _, data in Window.at(data) { if !$0.isSetting { $0.edited() } } }, myself)
        cgtk_on_close(
            window,
            { _, data in
                Window.at(data) { $0.closed() }
                return 1
            }, myself)
    }

    var text: String {
        get {
            guard let text = cgtk_text(buffer) else { return "" }
            defer { g_free(text) }
            return String(cString: text)
        }
        set {
            isSetting = true
            gtk_text_buffer_set_text(buffer, newValue, -1)
            isSetting = false
        }
    }

    func present() { cgtk_present(window) }

    private nonisolated static func at(
        _ data: UnsafeMutableRawPointer?, _ body: @MainActor (Window) -> Void
    ) {
        // GTK calls its handlers on the thread that runs its loop, which is the main thread.
        let address = UInt(bitPattern: data)
        MainActor.assumeIsolated {
            guard let own = UnsafeRawPointer(bitPattern: address) else { return }
            body(Unmanaged<Window>.fromOpaque(own).takeUnretainedValue())
        }
    }

    /// Runs GTK's main loop with an application in it.
    static func run(_ delegate: @autoclosure () -> some ApplicationDelegate) {
        guard gtk_init_check() != 0 else {
            log("there is no display")
            exit(1)
        }
        // A logout and Ctrl-C end Notes in an orderly way, too: GTK handles no signals.
        let connection = Application.shared.connect(delegate(), handlesSignals: true)
        let data = Unmanaged.passRetained(connection).toOpaque()
        cgtk_watch(
            connection.descriptor,
            { _, _, data in
                let address = UInt(bitPattern: data)
                MainActor.assumeIsolated {
                    guard let own = UnsafeRawPointer(bitPattern: address) else { return }
                    Unmanaged<Connection>.fromOpaque(own).takeUnretainedValue().dispatch()
                }
                return data == nil ? 0 : 1
            }, data)
        while true { g_main_context_iteration(nil, 1) }
    }
}
