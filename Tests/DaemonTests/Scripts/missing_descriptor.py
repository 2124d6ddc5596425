"""Calls RegisterProcess with the number of a descriptor, and sends no descriptor with it."""

from gi.repository import Gio, GLib

connection = Gio.bus_get_sync(Gio.BusType.SYSTEM)
arguments = GLib.Variant("(sha{sv})", ("org.example.App", 0, {}))
try:
    connection.call_sync(
        "org.appstate1", "/org/appstate1", "org.appstate1.Manager", "RegisterProcess", arguments, None, 0, -1, None
    )
except GLib.Error as error:
    print(error.message)
