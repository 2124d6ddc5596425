import Glibc

/// An X11 application for tests: it opens windows on the display that DISPLAY names and executes commands line by line
/// from standard input.
///
/// A line is `NUMBER COMMAND WORD…`. It is answered by `#NUMBER ok WORD…` or `#NUMBER error TEXT` once the X server has
/// processed it. The program ends with its input. A window that is asked to close (WM_DELETE_WINDOW) closes.
///
///     manager [WINDOW]         waits until there is a window manager, another than that WINDOW; answers with its window
///     open CLASS [TITLE…]      a window; answers with its number
///     open-many COUNT CLASS    so many; answers with their numbers
///     fixture TYPE CLASS       a window of _NET_WM_WINDOW_TYPE_TYPE
///     title WINDOW TEXT…
///     lie WINDOW PID           sets _NET_WM_PID
///     property WINDOW NAME TYPE VALUE…
///                              sets a property, 0: of the root window; a value is a number or the name of an atom
///     close WINDOW             destroys it
///     withdraw WINDOW          unmaps it; map WINDOW maps it again
///     own WINDOW SELECTION     takes a selection; disown SELECTION gives it up
///     protocol WINDOW ATOM     sends it a message of WM_PROTOCOLS
///     grab                     grabs the X server for good
///     desktop WINDOW NUMBER    asks the window manager to move it to that workspace; 4294967295: to all
///     register ID              registers itself on the system bus; answers with its application's path
///     launched                 calls FinishLaunching; unregister calls Unregister
///     activate TIMES WINDOW…   asks the window manager for the focus, so many times, in turn, as a pager does
@main
enum Main {
    static func main() {
        guard let application = Application() else {
            print("no display")
            exit(1)
        }
        application.run()
    }
}

/// Writes a line at once.
func say(_ line: String) {
    let bytes = Array((line + "\n").utf8)
    var rest = bytes[...]
    while !rest.isEmpty {
        let count = rest.withUnsafeBytes { write(STDOUT_FILENO, $0.baseAddress, $0.count) }
        guard count > 0 else { return }
        rest = rest.dropFirst(count)
    }
}
