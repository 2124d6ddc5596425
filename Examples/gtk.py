#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A GTK 4 application with the whole life cycle, over GDBus. It saves its text.

Needs python3-gi and gir1.2-gtk-4.0. Uses the system bus, or the one that DBUS_SYSTEM_BUS_ADDRESS names.
"""

import os
import sys

import gi

gi.require_version("Gtk", "4.0")
from gi.repository import Gio, GLib, Gtk  # noqa: E402

NAME = "org.appstate1"
INTERFACE = "org.appstate1.Application"
BUS = "org.freedesktop.DBus"


class Application:
    def __init__(self, app_id):
        self.bus = Gio.bus_get_sync(Gio.BusType.SYSTEM)
        self.loop = GLib.MainLoop()
        self.buffer = Gtk.TextBuffer()
        self.path = None
        self.daemon = None
        # Add the match before registering, because the first signals follow the reply at once.
        none = Gio.DBusSignalFlags.NONE
        self.bus.signal_subscribe(NAME, INTERFACE, None, None, None, none, self.on_signal)
        self.bus.signal_subscribe(BUS, BUS, "NameOwnerChanged", None, NAME, none, self.on_owner)
        arguments = GLib.Variant("(sua{sv})", (app_id, 0, {}))
        (self.path,) = self.call("/org/appstate1", "org.appstate1.Manager", "Register", arguments)
        (self.daemon,) = self.call("/org/freedesktop/DBus", BUS, "GetNameOwner", GLib.Variant("(s)", (NAME,)), BUS)

    def call(self, path, interface, member, arguments=None, service=NAME):
        # Wait at most three seconds, so that a daemon that hangs does not hang the window.
        flags = Gio.DBusCallFlags.NONE
        answer = self.bus.call_sync(service, path, interface, member, arguments, None, flags, 3000, None)
        return answer.unpack()

    def tell(self, member, signature=None, *arguments):
        return self.call(self.path, INTERFACE, member, signature and GLib.Variant(signature, arguments))

    def on_owner(self, _bus, _sender, _path, _interface, _member, parameters):
        # The next daemon has the same application at the same path, with the same delegate.
        (_name, _before, self.daemon) = parameters.unpack()

    def on_signal(self, _bus, sender, path, _interface, member, parameters):
        # Any process may send us a signal, and a forged WillTerminate would end us. A match rule does not keep
        # it out, and GDBus does so only since GLib 2.80.
        if sender != self.daemon or path != self.path:
            return
        arguments = parameters.unpack()
        print(member, *arguments, flush=True)
        handler = getattr(self, member, None)
        try:
            if handler:
                handler(*arguments)
        except GLib.Error as error:
            print(f"gtk.py: {member}: {error.message}", file=sys.stderr)

    # Handlers, named after the signals.

    def WillFinishLaunching(self, options):
        if options.get("restorable"):
            (state,) = self.tell("LoadState")
            self.buffer.set_text(bytes(state).decode())
            print("restored", bytes(state).decode(), flush=True)

    def DidFinishLaunching(self):
        window = Gtk.Window(title="Notes", default_width=400, default_height=300)
        window.set_child(Gtk.TextView(buffer=self.buffer))
        window.connect("close-request", lambda _: self.quit())
        window.present()
        self.tell("FinishLaunching")

    def DidEnterBackground(self, serial, _deadline):
        self.save()
        self.acknowledge(serial)

    def WillTerminate(self, serial, _deadline):
        self.save()
        self.acknowledge(serial)

    def save(self):
        text = self.buffer.get_text(*self.buffer.get_bounds(), False) or f"written by {os.getpid()}"
        self.tell("SaveState", "(ay)", text.encode())

    def acknowledge(self, serial):
        self.tell("Acknowledge", "(t)", serial)

    def quit(self):
        try:
            self.save()
        finally:
            # Without the daemon nothing is saved, but the application still ends.
            self.loop.quit()


if __name__ == "__main__":
    if not Gtk.init_check():
        sys.exit("gtk.py: there is no display")
    try:
        application = Application(sys.argv[1] if len(sys.argv) > 1 else "org.example.Gtk")
    except GLib.Error as error:
        sys.exit(f"gtk.py: {error.message}")
    application.loop.run()
