import AppState
import CGTK
import Glibc

/// A GTK 4 window with a text in it. It is there until `close()`.
@MainActor
final class Window {
    private let buffer: UnsafeMutablePointer<GtkTextBuffer>
    private let window: UnsafeMutablePointer<GtkWidget>
    /// Called when the user has changed the text.
    var edited: () -> Void = {}
    /// Called when the user wants to close the window.
    var closed: () -> Void = {}
    /// Called when the user wants another window: Ctrl-N.
    var another: () -> Void = {}
    /// Called when the window's visibility or focus may have changed.
    var changed: () -> Void = {}
    private var isSetting = false

    init(title: String) {
        guard let view = gtk_text_view_new(), let buffer = cgtk_buffer(view),
            let window = cgtk_window(title, view)
        else { fatalError("no memory for a window") }
        (self.buffer, self.window) = (buffer, window)
        let myself = Unmanaged.passUnretained(self).toOpaque()
        cgtk_on(buffer, "changed", { data in Window.at(data) { if !$0.isSetting { $0.edited() } } }, myself)
        cgtk_on_change(window, { data in Window.at(data) { $0.changed() } }, myself)
        cgtk_on_close(
            window,
            { _, data in
                Window.at(data) { $0.closed() }
                return 1
            }, myself)
        cgtk_on_key(
            window, "<Control>n",
            { _, _, data in
                Window.at(data) { $0.another() }
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

    var isVisible: Bool { cgtk_is_visible(window) != 0 }
    var isActive: Bool { cgtk_is_active(window) != 0 }

    func present() { cgtk_present(window) }

    func close() {
        (edited, closed, another, changed) = ({}, {}, {}, {})
        cgtk_destroy(window)
    }

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
