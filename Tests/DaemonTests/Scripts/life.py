"""Uses the service as a python3-dbus program does: registers a process, subscribes, prints what it reads and is
sent, and ends when the application has.

Argument: the process.
"""

import sys

import dbus
import dbus.mainloop.glib
from gi.repository import GLib

SERVICE = "org.appstate1"
MANAGER = SERVICE + ".Manager"
APPLICATION = SERVICE + ".Application"
pid = int(sys.argv[1])


def say(*words):
    print(*map(str, words), flush=True)


dbus.mainloop.glib.DBusGMainLoop(set_as_default=True)
bus = dbus.SystemBus()
loop = GLib.MainLoop()
root = bus.get_object(SERVICE, "/org/appstate1")
manager = dbus.Interface(root, MANAGER)
reporter = dbus.Interface(root, SERVICE + ".Reporter")

# python3-dbus takes the signature from the introspection data; an empty dictionary has none of its own.
path = manager.Register("org.example.Python", pid, {})
say("registered", path)
say("known", manager.GetApplicationByPID(pid), *(row[1] for row in manager.ListApplications()))

application = dbus.Interface(bus.get_object(SERVICE, path), APPLICATION)
properties = dbus.Interface(application, dbus.PROPERTIES_IFACE)
say("state", properties.Get(APPLICATION, "State"))
say("every property", *sorted(properties.GetAll(APPLICATION)))
say("explained", application.Explain()["app-id"])


def changed(source, target, reason):
    say("edge", source + "→" + target, reason)


def removed(gone, name, process, reason):
    say("removed", gone, reason)
    loop.quit()


application.connect_to_signal("StateChanged", changed)
manager.connect_to_signal("ApplicationRemoved", removed)
manager.Subscribe()

for wrong, call in [
    ("missing", lambda: manager.GetApplicationByPID(dbus.UInt32(1))),
    ("twice", lambda: manager.Register("org.example.Python", pid, {})),
    ("option", lambda: manager.Register("org.example.Python", pid, {"colour": "red"})),
    ("delegate", lambda: application.FinishLaunching()),
]:
    try:
        call()
    except dbus.DBusException as error:
        say("refused", wrong, error.get_dbus_name())

reporter.SetFocus(pid)
say("focused", dbus.Interface(root, dbus.PROPERTIES_IFACE).Get(MANAGER, "FocusedApplication"))
loop.run()
