#pragma once

#include <wayland-client.h>

// Fills in an interface. Its name comes last: it says that the rest is there.
#define CWAYLAND_MESSAGES(interface, wire_name, wire_version, requests, events) \
    interface.version = wire_version, interface.method_count = sizeof requests / sizeof requests[0], \
    interface.methods = requests, interface.event_count = sizeof events / sizeof events[0], \
    interface.events = events, interface.name = wire_name
