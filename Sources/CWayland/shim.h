#pragma once

#include <wayland-client.h>

#include "cosmic-toplevel.h"
#include "data-control.h"
#include "foreign-toplevel.h"
#include "plasma.h"
#include "xdg-activation.h"

// Swift cannot take the address of the library's own interface.
static inline const struct wl_interface *cwayland_seat_interface(void) { return &wl_seat_interface; }

// The names and the numbers of the messages are those of the protocol; only the wire format is written here.
// A signature has a letter for each argument (wayland-util.h, "wl_message"). `types` names the interface of
// each object among the arguments.
