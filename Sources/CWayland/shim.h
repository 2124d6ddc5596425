#pragma once

#include <wayland-client.h>

#include "foreign-toplevel.h"
#include "plasma.h"

// Names, and the numbers of their messages, are the protocol's; what is written here is only its form on the wire. A
// signature has a letter for each argument (wayland-util.h, "wl_message"). `types` names the interface of each object
// among the arguments.
