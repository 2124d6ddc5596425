#pragma once

#include "messages.h"

// zwlr_foreign_toplevel_manager_v1 and zwlr_foreign_toplevel_handle_v1, version 3: the windows of a compositor, for
// taskbars. The handle's requests from set_maximized on are those of a taskbar.

enum cwayland_toplevel_manager_event {
    CWAYLAND_TOPLEVEL_MANAGER_TOPLEVEL = 0,
    CWAYLAND_TOPLEVEL_MANAGER_FINISHED = 1,
};

enum cwayland_toplevel_event {
    CWAYLAND_TOPLEVEL_TITLE = 0,
    CWAYLAND_TOPLEVEL_APP_ID = 1,
    CWAYLAND_TOPLEVEL_OUTPUT_ENTER = 2,
    CWAYLAND_TOPLEVEL_OUTPUT_LEAVE = 3,
    CWAYLAND_TOPLEVEL_STATE = 4,
    CWAYLAND_TOPLEVEL_DONE = 5,
    CWAYLAND_TOPLEVEL_CLOSED = 6,
    CWAYLAND_TOPLEVEL_PARENT = 7,
};

enum cwayland_toplevel_request {
    CWAYLAND_TOPLEVEL_SET_MINIMIZED = 2,
    CWAYLAND_TOPLEVEL_UNSET_MINIMIZED = 3,
    CWAYLAND_TOPLEVEL_ACTIVATE = 4,
    CWAYLAND_TOPLEVEL_CLOSE = 5,
    CWAYLAND_TOPLEVEL_DESTROY = 7,
};

// The elements of the array that comes with the event `state`.
enum cwayland_toplevel_state {
    CWAYLAND_TOPLEVEL_STATE_MAXIMIZED = 0,
    CWAYLAND_TOPLEVEL_STATE_MINIMIZED = 1,
    CWAYLAND_TOPLEVEL_STATE_ACTIVATED = 2,
    CWAYLAND_TOPLEVEL_STATE_FULLSCREEN = 3,
    CWAYLAND_TOPLEVEL_STATE_STICKY = 4,
};

static inline const struct wl_interface *cwayland_toplevel_interface(void) {
    static struct wl_interface interface;
    static const struct wl_interface *plain[4];
    static const struct wl_interface *seat[1];
    static const struct wl_interface *surface[5];
    static const struct wl_interface *output[1];
    static const struct wl_interface *parent[1];
    static const struct wl_message requests[] = {
        {"set_maximized", "", plain},   {"unset_maximized", "", plain},
        {"set_minimized", "", plain},   {"unset_minimized", "", plain},
        {"activate", "o", seat},        {"close", "", plain},
        {"set_rectangle", "oiiii", surface}, {"destroy", "", plain},
        {"set_fullscreen", "2?o", output},   {"unset_fullscreen", "2", plain},
    };
    static const struct wl_message events[] = {
        {"title", "s", plain},         {"app_id", "s", plain}, {"output_enter", "o", output},
        {"output_leave", "o", output}, {"state", "a", plain},  {"done", "", plain},
        {"closed", "", plain},         {"parent", "3?o", parent},
    };
    if (interface.name) return &interface;
    seat[0] = &wl_seat_interface;
    surface[0] = &wl_surface_interface;
    output[0] = &wl_output_interface;
    parent[0] = &interface;
    CWAYLAND_MESSAGES(interface, "zwlr_foreign_toplevel_handle_v1", 3, requests, events);
    return &interface;
}

static inline const struct wl_interface *cwayland_toplevel_manager_interface(void) {
    static struct wl_interface interface;
    static const struct wl_interface *handle[1];
    static const struct wl_message requests[] = {{"stop", "", 0}};
    static const struct wl_message events[] = {{"toplevel", "n", handle}, {"finished", "", 0}};
    if (interface.name) return &interface;
    handle[0] = cwayland_toplevel_interface();
    CWAYLAND_MESSAGES(interface, "zwlr_foreign_toplevel_manager_v1", 3, requests, events);
    return &interface;
}
