"""What a desktop offers its applications, as far as the tests of applications need it.

Server sends a file slowly, WATCHER is a panel's tray, and PASTE is an application into which somebody pastes.
"""
import http.server, threading

PYTHON = "/usr/bin/python3"

# Owns org.kde.StatusNotifierWatcher on the session bus, and prints "SERVICE PATH" for each tray icon.
WATCHER = """
from gi.repository import Gio, GLib
NAME, items = "org.kde.StatusNotifierWatcher", []
node = Gio.DBusNodeInfo.new_for_xml('''<node><interface name="org.kde.StatusNotifierWatcher">
<method name="RegisterStatusNotifierItem"><arg type="s" direction="in"/></method>
<method name="RegisterStatusNotifierHost"><arg type="s" direction="in"/></method>
<property name="RegisteredStatusNotifierItems" type="as" access="read"/>
<property name="IsStatusNotifierHostRegistered" type="b" access="read"/>
<property name="ProtocolVersion" type="i" access="read"/>
<signal name="StatusNotifierItemRegistered"><arg type="s"/></signal>
<signal name="StatusNotifierHostRegistered"/></interface></node>''')
def called(bus, sender, path, interface, member, arguments, invocation):
    word, = arguments.unpack()
    if member == "RegisterStatusNotifierItem":
        service, item = (sender, word) if word.startswith("/") else (word, "/StatusNotifierItem")
        items.append(service + item)
        print(service, item, flush=True)
    invocation.return_value(None)
def read(bus, sender, path, interface, name):
    return {"RegisteredStatusNotifierItems": GLib.Variant("as", items), "ProtocolVersion": GLib.Variant("i", 0),
            "IsStatusNotifierHostRegistered": GLib.Variant("b", True)}[name]
bus = Gio.bus_get_sync(Gio.BusType.SESSION)
bus.register_object("/StatusNotifierWatcher", node.interfaces[0], called, read, None)
Gio.bus_own_name_on_connection(bus, NAME, 0, lambda *_: print("owned", flush=True), None)
GLib.MainLoop().run()
"""

# Opens a window, and prints what the clipboard holds once the window has the focus. It waits for a minute.
PASTE = """
import gi
gi.require_version("Gdk", "3.0")
gi.require_version("Gtk", "3.0")
from gi.repository import Gdk, GLib, Gtk
window = Gtk.Window(title="paste")
def paste(*_):
    text = Gtk.Clipboard.get(Gdk.SELECTION_CLIPBOARD).wait_for_text()
    if text is not None:
        print(text, flush=True)
    Gtk.main_quit()
window.connect("focus-in-event", lambda *_: GLib.timeout_add(100, paste))
GLib.timeout_add_seconds(60, Gtk.main_quit)
window.show_all()
Gtk.main()
"""


class Server:
    """A web server at 127.0.0.1 whose only file arrives at 256 KiB per second, until `end` is called."""

    def __init__(self):
        self.open = 0
        self.ended = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                if self.path != "/large.bin":
                    return self.send_error(404)
                self.send_response(200)
                self.send_header("Content-Type", "application/octet-stream")
                self.send_header("Content-Disposition", "attachment; filename=large.bin")
                self.end_headers()
                outer.open += 1
                try:
                    while not outer.ended.wait(0.1):
                        self.wfile.write(bytes(26_214))
                except OSError:
                    pass
                outer.open -= 1

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}/large.bin"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def end(self):
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()
