#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints every change of state of every application that the caller may see.

Needs python3-gi. Uses the system bus, or the one that DBUS_SYSTEM_BUS_ADDRESS names.
"""

import signal
import sys

from gi.repository import Gio, GLib

NAME = "org.appstate1"
PATH = "/org/appstate1"
MANAGER = "org.appstate1.Manager"


def call(bus, member, reply=None):
    kind = reply and GLib.VariantType(reply)
    return bus.call_sync(NAME, PATH, MANAGER, member, None, kind, Gio.DBusCallFlags.NONE, -1, None)


# The daemon's connection. Any process may send us a signal, so the signals of others do not count. A match rule does not
# keep them out, and GDBus does so only since GLib 2.80.
daemon = None


def show(*words):
    print(*words, flush=True)


def list_applications(bus):
    (applications,) = call(bus, "ListApplications", "(a(osuus))").unpack()
    for _path, app_id, pid, _uid, state in applications:
        show(f"{app_id} [{pid}] is {state}")


def on_signal(bus, sender, _path, _interface, member, parameters):
    if sender != daemon:
        return
    arguments = parameters.unpack()
    if member == "StateChanged":
        _path, app_id, pid, before, after, reason = arguments
        show(f"{app_id} [{pid}] {before} -> {after} ({reason})")
    elif member == "ApplicationAdded":
        _path, app_id, pid = arguments
        show(f"{app_id} [{pid}] was registered")
    elif member == "ApplicationRemoved":
        _path, app_id, pid, reason, _details = arguments
        show(f"{app_id} [{pid}] is gone ({reason})")
    elif member == "Resync":
        # This process was suspended, or did not read, so its knowledge is out of date.
        list_applications(bus)


def on_name_appeared(bus, _name, owner):
    global daemon
    daemon = owner
    # The daemon sends signals only to subscribers, so a match alone receives nothing. Subscribe first and
    # list second, so that no change is missed in between.
    try:
        call(bus, "Subscribe")
        list_applications(bus)
    except GLib.Error as error:
        sys.exit(f"subscriber: {error.message}")


def on_name_vanished(_bus, _name):
    global daemon
    daemon = None
    show("appstated is not there; waiting for it")


def main():
    try:
        bus = Gio.bus_get_sync(Gio.BusType.SYSTEM)
    except GLib.Error as error:
        sys.exit(f"subscriber: no system bus: {error.message}")
    bus.signal_subscribe(NAME, MANAGER, None, PATH, None, Gio.DBusSignalFlags.NONE, on_signal)
    Gio.bus_watch_name_on_connection(
        bus, NAME, Gio.BusNameWatcherFlags.AUTO_START, on_name_appeared, on_name_vanished
    )
    loop = GLib.MainLoop()
    for number in (signal.SIGINT, signal.SIGTERM):
        GLib.unix_signal_add(GLib.PRIORITY_DEFAULT, number, loop.quit)
    loop.run()


if __name__ == "__main__":
    main()
