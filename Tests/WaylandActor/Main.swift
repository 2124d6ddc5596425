import Glibc

/// A Wayland application for tests: it opens windows on the compositor that WAYLAND_DISPLAY names and executes commands
/// line by line from standard input. It is also a taskbar: it asks the compositor to manipulate any client's windows.
///
/// A line is `NUMBER COMMAND WORD…`. It is answered by `#NUMBER ok WORD…` or `#NUMBER error TEXT` once the compositor
/// has processed it. The program ends with its input. A window that is asked to close closes.
///
///     open ID [TITLE…]         a window of that application id, `-`: of none; answers with its number
///     open-many COUNT ID       so many, with the titles `window 0` and so on; answers with their numbers
///     name WINDOW ID           gives it another application id
///     title WINDOW TEXT…
///     put-away WINDOW          asks to be minimized
///     close WINDOW             destroys it
///     copy SELECTION           sets CLIPBOARD or PRIMARY; uncopy SELECTION takes it back
///     bar DEED TITLE…          as a taskbar: minimize, restore, activate or close the window of that title
///     bar-each DEED TITLE…     the same to all windows whose title begins so, in one message after the other
///     plasma show-desktop 0|1  with KWin: shows the desktop, or the windows again
///     plasma desktop NUMBER    with KWin: shows that virtual desktop, from 1; as many are made as are missing
///     plasma move NUMBER TITLE…  with KWin: puts the window on that desktop alone
@main
enum Main {
    static func main() {
        guard let application = Application() else {
            print("no compositor")
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
