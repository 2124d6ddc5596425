#pragma once

#include "messages.h"

// The windows of COSMIC: ext_foreign_toplevel_list_v1 lists them, zcosmic_toplevel_info_v1 (from version 2) adds their
// states and, from version 3, their workspaces, which ext_workspace_manager_v1 lists. zcosmic_toplevel_manager_v1 takes
// the requests of a taskbar.

enum cwayland_cosmic_event {
    CWAYLAND_EXT_TOPLEVEL_CLOSED = 0,
    CWAYLAND_EXT_TOPLEVEL_DONE = 1,
    CWAYLAND_EXT_TOPLEVEL_TITLE = 2,
    CWAYLAND_EXT_TOPLEVEL_APP_ID = 3,
    CWAYLAND_COSMIC_INFO_DONE = 2,
    CWAYLAND_COSMIC_TOPLEVEL_STATE = 8,
    CWAYLAND_COSMIC_TOPLEVEL_WORKSPACE_ENTER = 10,
    CWAYLAND_COSMIC_TOPLEVEL_WORKSPACE_LEAVE = 11,
    CWAYLAND_WORKSPACE_MANAGER_WORKSPACE = 1,
    CWAYLAND_WORKSPACE_STATE = 3,
    CWAYLAND_WORKSPACE_REMOVED = 5,
};

enum cwayland_cosmic_request {
    CWAYLAND_EXT_TOPLEVEL_DESTROY = 0,
    CWAYLAND_COSMIC_INFO_GET_TOPLEVEL = 1,
    CWAYLAND_COSMIC_TOPLEVEL_DESTROY = 0,
    CWAYLAND_COSMIC_MANAGER_ACTIVATE = 2,
    CWAYLAND_COSMIC_MANAGER_SET_MINIMIZED = 5,
    CWAYLAND_COSMIC_MANAGER_UNSET_MINIMIZED = 6,
    CWAYLAND_WORKSPACE_DESTROY = 0,
};

// A bit in the event `state` of a workspace.
enum cwayland_workspace_state { CWAYLAND_WORKSPACE_ACTIVE = 1 };

static inline const struct wl_interface *cwayland_workspace_interface(void) {
    static struct wl_interface interface;
    static const struct wl_interface *plain[1];
    static const struct wl_message requests[] = {
        {"destroy", "", plain}, {"activate", "", plain}, {"deactivate", "", plain},
        {"assign", "o", plain}, {"remove", "", plain},
    };
    static const struct wl_message events[] = {
        {"id", "s", plain},    {"name", "s", plain},         {"coordinates", "a", plain},
        {"state", "u", plain}, {"capabilities", "u", plain}, {"removed", "", plain},
    };
    CWAYLAND_MESSAGES(interface, "ext_workspace_handle_v1", 1, requests, events);
    return &interface;
}

static inline const struct wl_interface *cwayland_workspace_group_interface(void) {
    static struct wl_interface interface;
    static const struct wl_interface *plain[1];
    static const struct wl_message requests[] = {{"create_workspace", "s", plain}, {"destroy", "", plain}};
    static const struct wl_message events[] = {
        {"capabilities", "u", plain},    {"output_enter", "o", plain},    {"output_leave", "o", plain},
        {"workspace_enter", "o", plain}, {"workspace_leave", "o", plain}, {"removed", "", plain},
    };
    CWAYLAND_MESSAGES(interface, "ext_workspace_group_handle_v1", 1, requests, events);
    return &interface;
}

static inline const struct wl_interface *cwayland_workspace_manager_interface(void) {
    static struct wl_interface interface;
    static const struct wl_interface *group[1], *workspace[1];
    static const struct wl_message requests[] = {{"commit", "", 0}, {"stop", "", 0}};
    static const struct wl_message events[] = {
        {"workspace_group", "n", group}, {"workspace", "n", workspace}, {"done", "", 0}, {"finished", "", 0},
    };
    group[0] = cwayland_workspace_group_interface();
    workspace[0] = cwayland_workspace_interface();
    CWAYLAND_MESSAGES(interface, "ext_workspace_manager_v1", 1, requests, events);
    return &interface;
}

static inline const struct wl_interface *cwayland_ext_toplevel_interface(void) {
    static struct wl_interface interface;
    static const struct wl_interface *plain[1];
    static const struct wl_message requests[] = {{"destroy", "", plain}};
    static const struct wl_message events[] = {
        {"closed", "", plain},  {"done", "", plain},        {"title", "s", plain},
        {"app_id", "s", plain}, {"identifier", "s", plain},
    };
    CWAYLAND_MESSAGES(interface, "ext_foreign_toplevel_handle_v1", 1, requests, events);
    return &interface;
}

static inline const struct wl_interface *cwayland_ext_toplevel_list_interface(void) {
    static struct wl_interface interface;
    static const struct wl_interface *handle[1];
    static const struct wl_message requests[] = {{"stop", "", 0}, {"destroy", "", 0}};
    static const struct wl_message events[] = {{"toplevel", "n", handle}, {"finished", "", 0}};
    handle[0] = cwayland_ext_toplevel_interface();
    CWAYLAND_MESSAGES(interface, "ext_foreign_toplevel_list_v1", 1, requests, events);
    return &interface;
}

static inline const struct wl_interface *cwayland_cosmic_toplevel_interface(void) {
    static struct wl_interface interface;
    static const struct wl_interface *plain[5], *output[5];
    static const struct wl_interface *workspace[1];
    static const struct wl_message requests[] = {{"destroy", "", plain}};
    static const struct wl_message events[] = {
        {"closed", "", plain},           {"done", "", plain},
        {"title", "s", plain},           {"app_id", "s", plain},
        {"output_enter", "o", output},   {"output_leave", "o", output},
        {"workspace_enter", "o", plain}, {"workspace_leave", "o", plain},
        {"state", "a", plain},           {"geometry", "2oiiii", output},
        {"ext_workspace_enter", "3o", workspace}, {"ext_workspace_leave", "3o", workspace},
    };
    output[0] = &wl_output_interface;
    workspace[0] = cwayland_workspace_interface();
    CWAYLAND_MESSAGES(interface, "zcosmic_toplevel_handle_v1", 3, requests, events);
    return &interface;
}

static inline const struct wl_interface *cwayland_cosmic_info_interface(void) {
    static struct wl_interface interface;
    static const struct wl_interface *handle[1], *extension[2];
    static const struct wl_message requests[] = {{"stop", "", 0}, {"get_cosmic_toplevel", "2no", extension}};
    static const struct wl_message events[] = {{"toplevel", "n", handle}, {"finished", "", 0}, {"done", "2", 0}};
    handle[0] = extension[0] = cwayland_cosmic_toplevel_interface();
    extension[1] = cwayland_ext_toplevel_interface();
    CWAYLAND_MESSAGES(interface, "zcosmic_toplevel_info_v1", 3, requests, events);
    return &interface;
}

static inline const struct wl_interface *cwayland_cosmic_manager_interface(void) {
    static struct wl_interface interface;
    static const struct wl_interface *handle[2];
    static const struct wl_message requests[] = {
        {"destroy", "", 0},           {"close", "o", handle},           {"activate", "oo", handle},
        {"set_maximized", "o", handle}, {"unset_maximized", "o", handle}, {"set_minimized", "o", handle},
        {"unset_minimized", "o", handle},
    };
    static const struct wl_message events[] = {{"capabilities", "a", 0}};
    handle[0] = cwayland_cosmic_toplevel_interface();
    handle[1] = &wl_seat_interface;
    CWAYLAND_MESSAGES(interface, "zcosmic_toplevel_manager_v1", 1, requests, events);
    return &interface;
}
