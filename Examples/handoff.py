#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A note that you continue on another machine.

Each line that you type is added to the note. With this program in front, "appstatectl handoff HOST" starts it on the
other machine, where it prints the note and goes on. It needs a desktop entry org.example.Handoff.desktop there:

    [Desktop Entry]
    Type=Application
    Name=Handoff
    Exec=python3 /path/to/handoff.py
    Terminal=true
    X-AppState-ActivityTypes=org.example.Handoff.editing

Needs python3-gi. Uses the system bus, or the one that DBUS_SYSTEM_BUS_ADDRESS names.
"""

import os
import sys

from gi.repository import Gio, GLib

NAME = "org.appstate1"
APPLICATION = "org.appstate1.Application"
EDITING = "org.example.Handoff.editing"


class Note:
    def __init__(self, bus):
        self.bus, self.path, self.text = bus, None, ""
        self.loop = GLib.MainLoop()
        # Any process may send us a signal. Only the daemon's count, and it is the one that owns the name.
        self.daemon = None
        Gio.bus_watch_name_on_connection(bus, NAME, Gio.BusNameWatcherFlags.NONE, self.on_daemon, self.on_daemon)
        bus.signal_subscribe(None, APPLICATION, None, None, None, Gio.DBusSignalFlags.NONE, self.on_signal)
        arguments = GLib.Variant("(sua{sv})", ("org.example.Handoff", 0, {}))
        reply = self.call("/org/appstate1", "org.appstate1.Manager", "Register", arguments)
        self.daemon = reply.get_sender()
        (self.path,) = reply.get_body().unpack()
        GLib.io_add_watch(sys.stdin.fileno(), GLib.PRIORITY_DEFAULT, GLib.IO_IN | GLib.IO_HUP, self.on_input)

    def call(self, path, interface, member, arguments=None):
        message = Gio.DBusMessage.new_method_call(NAME, path, interface, member)
        if arguments:
            message.set_body(arguments)
        reply = self.bus.send_message_with_reply_sync(message, Gio.DBusSendMessageFlags.NONE, -1, None)[0]
        reply.to_gerror()
        return reply

    def tell(self, member, arguments=None):
        self.call(self.path, APPLICATION, member, arguments)

    def on_daemon(self, _bus, _name, owner=None):
        self.daemon = owner or self.daemon

    def on_input(self, descriptor, _condition):
        data = os.read(descriptor, 65536)
        if data:
            self.text += data.decode(errors="replace")
            self.announce()
        return bool(data)

    def announce(self):
        """Says what the user is doing, each time that it has changed."""
        info = {"text": GLib.Variant("s", self.text)}
        self.tell("SetUserActivity", GLib.Variant("(sa{sv})", (EDITING, info)))

    def on_signal(self, _bus, sender, path, _interface, member, parameters):
        if sender != self.daemon or path != self.path:
            return
        arguments = parameters.unpack()
        if member == "DidFinishLaunching":
            self.tell("FinishLaunching")
        elif member == "ContinueUserActivity" and arguments[0] == EDITING:
            self.text = arguments[1].get("text", "")
            print(self.text, end="", flush=True)
            self.announce()
        elif member == "DidEnterBackground":
            self.tell("Acknowledge", GLib.Variant("(t)", (arguments[0],)))
        elif member == "WillTerminate":
            self.tell("Acknowledge", GLib.Variant("(t)", (arguments[0],)))
            self.loop.quit()


if __name__ == "__main__":
    try:
        note = Note(Gio.bus_get_sync(Gio.BusType.SYSTEM))
    except GLib.Error as error:
        sys.exit(f"handoff: {error.message}")
    note.loop.run()
