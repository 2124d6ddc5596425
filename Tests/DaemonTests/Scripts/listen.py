"""Follows the service in every way there is, and prints each signal that comes: member, path, arguments."""

import dbus
import dbus.mainloop.glib
from gi.repository import GLib

SERVICE = "org.appstate1"
MANAGER = SERVICE + ".Manager"


def heard(*arguments, member, path):
    print(member, path, *map(str, arguments), flush=True)


dbus.mainloop.glib.DBusGMainLoop(set_as_default=True)
bus = dbus.SystemBus()
# Whatever is broadcast, by the service or as if it were about its objects.
bus.add_signal_receiver(heard, bus_name=SERVICE, member_keyword="member", path_keyword="path")
root = bus.get_object(SERVICE, "/org/appstate1", introspect=False)
root.Subscribe(dbus_interface=MANAGER)
objects = root.GetManagedObjects(dbus_interface="org.freedesktop.DBus.ObjectManager")
properties = root.GetAll(MANAGER, dbus_interface="org.freedesktop.DBus.Properties")
print("ready", len(objects), properties["FocusedApplication"], flush=True)
GLib.MainLoop().run()
