#pragma once

#include "messages.h"

// org_kde_plasma_window_management and org_kde_plasma_window, version 17, and
// org_kde_plasma_virtual_desktop_management, version 2: what KWin reports and what it can be asked, as far as the
// states of windows go. Requests after the last one named here are left out, because nothing sends them.
//
// To a client of version 12 to 16, KWin sends the UUIDs of all windows as one text whenever their stacking order
// changes. A message has at most 4,096 bytes: with more than 104 windows the text does not fit.

enum cwayland_plasma_management_request {
    CWAYLAND_PLASMA_SHOW_DESKTOP = 0,
    CWAYLAND_PLASMA_GET_WINDOW = 1,
    CWAYLAND_PLASMA_GET_WINDOW_BY_UUID = 2,
};

enum cwayland_plasma_management_event {
    CWAYLAND_PLASMA_SHOW_DESKTOP_CHANGED = 0,
    CWAYLAND_PLASMA_WINDOW = 1,
    CWAYLAND_PLASMA_WINDOW_WITH_UUID = 4,
};

enum cwayland_plasma_window_request {
    CWAYLAND_PLASMA_WINDOW_SET_STATE = 0,
    CWAYLAND_PLASMA_WINDOW_CLOSE = 4,
    CWAYLAND_PLASMA_WINDOW_DESTROY = 7,
    CWAYLAND_PLASMA_WINDOW_ENTER_DESKTOP = 9,
    CWAYLAND_PLASMA_WINDOW_LEAVE_DESKTOP = 11,
};

enum cwayland_plasma_window_event {
    CWAYLAND_PLASMA_WINDOW_TITLE = 0,
    CWAYLAND_PLASMA_WINDOW_APP_ID = 1,
    CWAYLAND_PLASMA_WINDOW_STATE = 2,
    CWAYLAND_PLASMA_WINDOW_UNMAPPED = 5,
    CWAYLAND_PLASMA_WINDOW_INITIAL_STATE = 6,
    CWAYLAND_PLASMA_WINDOW_PID = 10,
    CWAYLAND_PLASMA_WINDOW_DESKTOP_ENTERED = 11,
    CWAYLAND_PLASMA_WINDOW_DESKTOP_LEFT = 12,
};

// The bits of state_changed and set_state.
enum cwayland_plasma_window_state {
    CWAYLAND_PLASMA_WINDOW_ACTIVE = 1 << 0,
    CWAYLAND_PLASMA_WINDOW_MINIMIZED = 1 << 1,
    CWAYLAND_PLASMA_WINDOW_ON_ALL_DESKTOPS = 1 << 6,
    CWAYLAND_PLASMA_WINDOW_SKIP_TASKBAR = 1 << 12,
};

enum cwayland_plasma_desktops_request {
    CWAYLAND_PLASMA_DESKTOPS_GET = 0,
    CWAYLAND_PLASMA_DESKTOPS_CREATE = 1,
};

enum cwayland_plasma_desktops_event {
    CWAYLAND_PLASMA_DESKTOPS_CREATED = 0,
    CWAYLAND_PLASMA_DESKTOPS_REMOVED = 1,
};

enum cwayland_plasma_desktop_request {
    CWAYLAND_PLASMA_DESKTOP_ACTIVATE = 0,
};

enum cwayland_plasma_desktop_event {
    CWAYLAND_PLASMA_DESKTOP_ACTIVATED = 2,
};

#define CWAYLAND_COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

static inline const struct wl_interface *cwayland_plasma_window_interface(void) {
    static struct wl_interface interface;
    static const struct wl_interface *plain[5];
    static const struct wl_interface *surface[5];
    static const struct wl_interface *parent[1];
    static const struct wl_message requests[] = {
        {"set_state", "uu", plain},
        {"set_virtual_desktop", "u", plain},
        {"set_minimized_geometry", "ouuuu", surface},
        {"unset_minimized_geometry", "o", surface},
        {"close", "", plain},
        {"request_move", "3", plain},
        {"request_resize", "3", plain},
        {"destroy", "4", plain},
        {"get_icon", "7h", plain},
        {"request_enter_virtual_desktop", "8s", plain},
        {"request_enter_new_virtual_desktop", "8", plain},
        {"request_leave_virtual_desktop", "8s", plain},
    };
    static const struct wl_message events[] = {
        {"title_changed", "s", plain},
        {"app_id_changed", "s", plain},
        {"state_changed", "u", plain},
        {"virtual_desktop_changed", "i", plain},
        {"themed_icon_name_changed", "s", plain},
        {"unmapped", "", plain},
        {"initial_state", "4", plain},
        {"parent_window", "5?o", parent},
        {"geometry", "6iiuu", plain},
        {"icon_changed", "7", plain},
        {"pid_changed", "u", plain},
        {"virtual_desktop_entered", "8s", plain},
        {"virtual_desktop_left", "8s", plain},
        {"application_menu", "10ss", plain},
        {"activity_entered", "14s", plain},
        {"activity_left", "14s", plain},
        {"resource_name_changed", "16s", plain},
    };
    if (interface.name) return &interface;
    surface[0] = &wl_surface_interface;
    parent[0] = &interface;
    CWAYLAND_MESSAGES(interface, "org_kde_plasma_window", 17, requests, events);
    return &interface;
}

static inline const struct wl_interface *cwayland_plasma_management_interface(void) {
    static struct wl_interface interface;
    static const struct wl_interface *plain[2];
    static const struct wl_interface *window[2];
    static const struct wl_message requests[] = {
        {"show_desktop", "u", plain},
        {"get_window", "nu", window},
        {"get_window_by_uuid", "12ns", window},
    };
    static const struct wl_message events[] = {
        {"show_desktop_changed", "u", plain},
        {"window", "u", plain},
        {"stacking_order_changed", "11a", plain},
        {"stacking_order_uuid_changed", "12s", plain},
        {"window_with_uuid", "13us", plain},
        {"stacking_order_changed_2", "17", plain},
    };
    if (interface.name) return &interface;
    window[0] = cwayland_plasma_window_interface();
    CWAYLAND_MESSAGES(interface, "org_kde_plasma_window_management", 17, requests, events);
    return &interface;
}

static inline const struct wl_interface *cwayland_plasma_desktop_interface(void) {
    static const struct wl_interface *plain[1];
    static const struct wl_message requests[] = {{"request_activate", "", plain}};
    static const struct wl_message events[] = {
        {"desktop_id", "s", plain},  {"name", "s", plain}, {"activated", "", plain},
        {"deactivated", "", plain}, {"done", "", plain},  {"removed", "", plain},
    };
    static const struct wl_interface interface = {
        "org_kde_plasma_virtual_desktop", 1, CWAYLAND_COUNT(requests), requests, CWAYLAND_COUNT(events), events,
    };
    return &interface;
}

static inline const struct wl_interface *cwayland_plasma_desktops_interface(void) {
    static struct wl_interface interface;
    static const struct wl_interface *plain[2];
    static const struct wl_interface *desktop[2];
    static const struct wl_message requests[] = {
        {"get_virtual_desktop", "ns", desktop},
        {"request_create_virtual_desktop", "su", plain},
        {"request_remove_virtual_desktop", "s", plain},
    };
    static const struct wl_message events[] = {
        {"desktop_created", "su", plain},
        {"desktop_removed", "s", plain},
        {"done", "", plain},
        {"rows", "2u", plain},
    };
    if (interface.name) return &interface;
    desktop[0] = cwayland_plasma_desktop_interface();
    CWAYLAND_MESSAGES(interface, "org_kde_plasma_virtual_desktop_management", 2, requests, events);
    return &interface;
}
