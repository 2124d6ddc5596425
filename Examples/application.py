#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An application with a delegate. It registers itself and prints the signals that it receives.

Needs python3-gi. Uses the system bus, or the one that DBUS_SYSTEM_BUS_ADDRESS names. To try it, call
from elsewhere the Reporter's SetFocus and SetMinimized with the pid that it prints, then Terminate.
"""

import os
import signal
import sys

from gi.repository import Gio, GLib

NAME = "org.appstate1"
BUS = "org.freedesktop.DBus"


class Application:
    def __init__(self, bus, app_id):
        self.bus = bus
        self.path = None
        self.daemon = None
        self.loop = GLib.MainLoop()
        # Add the match before registering, because the first signals follow the reply at once.
        flags = Gio.DBusSignalFlags.NONE
        bus.signal_subscribe(NAME, "org.appstate1.Application", None, None, None, flags, self.on_signal)
        bus.signal_subscribe(BUS, BUS, "NameOwnerChanged", None, NAME, flags, self.on_owner)
        # pid 0 means this process. Its connection becomes the delegate, and suspension is automatic.
        arguments = GLib.Variant("(sua{sv})", (app_id, 0, {}))
        answer = self.call("/org/appstate1", "org.appstate1.Manager", "Register", arguments, "(o)")
        (self.path,) = answer.unpack()
        owner = GLib.Variant("(s)", (NAME,))
        (self.daemon,) = bus.call_sync(
            BUS, "/org/freedesktop/DBus", BUS, "GetNameOwner", owner, None, Gio.DBusCallFlags.NONE, -1, None
        ).unpack()
        print(f"{app_id} [{os.getpid()}] is {self.path}", flush=True)

    def call(self, path, interface, member, arguments=None, reply=None):
        kind = reply and GLib.VariantType(reply)
        flags = Gio.DBusCallFlags.NONE
        return self.bus.call_sync(NAME, path, interface, member, arguments, kind, flags, -1, None)

    def tell(self, member, arguments=None):
        self.call(self.path, "org.appstate1.Application", member, arguments)

    def acknowledge(self, serial):
        self.tell("Acknowledge", GLib.Variant("(t)", (serial,)))

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
        try:
            if member == "DidFinishLaunching":
                # An application would make its windows here. The state is not-running until this call.
                self.tell("FinishLaunching")
            elif member == "DidEnterBackground":
                # An application would save documents here. If it is done before the deadline, it is suspended earlier.
                self.acknowledge(arguments[0])
            elif member == "WillTerminate":
                # SIGTERM follows the acknowledgement.
                self.acknowledge(arguments[0])
        except GLib.Error as error:
            print(f"application: {member}: {error.message}", file=sys.stderr)

    def quit(self):
        self.loop.quit()
        return GLib.SOURCE_REMOVE

    def run(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            GLib.unix_signal_add(GLib.PRIORITY_DEFAULT, number, self.quit)
        self.loop.run()


def main():
    app_id = sys.argv[1] if len(sys.argv) > 1 else "org.example.Application"
    try:
        application = Application(Gio.bus_get_sync(Gio.BusType.SYSTEM), app_id)
    except GLib.Error as error:
        sys.exit(f"application: {error.message}")
    application.run()


if __name__ == "__main__":
    main()
