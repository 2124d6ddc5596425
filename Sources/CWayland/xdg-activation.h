#pragma once

#include "messages.h"

// xdg_activation_v1 and xdg_activation_token_v1, version 1: a token of the compositor that accompanies a program that
// is started, and by which its window may come to the front.

enum cwayland_activation_request {
    CWAYLAND_ACTIVATION_DESTROY = 0,
    CWAYLAND_ACTIVATION_GET_TOKEN = 1,
    CWAYLAND_ACTIVATION_ACTIVATE = 2,
};

enum cwayland_activation_token_request {
    CWAYLAND_ACTIVATION_TOKEN_SET_SERIAL = 0,
    CWAYLAND_ACTIVATION_TOKEN_SET_APP_ID = 1,
    CWAYLAND_ACTIVATION_TOKEN_SET_SURFACE = 2,
    CWAYLAND_ACTIVATION_TOKEN_COMMIT = 3,
    CWAYLAND_ACTIVATION_TOKEN_DESTROY = 4,
};

enum cwayland_activation_token_event {
    CWAYLAND_ACTIVATION_TOKEN_DONE = 0,
};

static inline const struct wl_interface *cwayland_activation_token_interface(void) {
    static struct wl_interface interface;
    static const struct wl_interface *plain[1];
    static const struct wl_interface *serial[2];
    static const struct wl_interface *surface[1];
    static const struct wl_message requests[] = {
        {"set_serial", "uo", serial}, {"set_app_id", "s", plain}, {"set_surface", "o", surface},
        {"commit", "", plain},        {"destroy", "", plain},
    };
    static const struct wl_message events[] = {{"done", "s", plain}};
    if (interface.name) return &interface;
    serial[1] = &wl_seat_interface;
    surface[0] = &wl_surface_interface;
    CWAYLAND_MESSAGES(interface, "xdg_activation_token_v1", 1, requests, events);
    return &interface;
}

static inline const struct wl_interface *cwayland_activation_interface(void) {
    static struct wl_interface interface;
    static const struct wl_interface *token[1];
    static const struct wl_interface *activated[2];
    static const struct wl_message requests[] = {
        {"destroy", "", 0}, {"get_activation_token", "n", token}, {"activate", "so", activated},
    };
    if (interface.name) return &interface;
    token[0] = cwayland_activation_token_interface();
    activated[1] = &wl_surface_interface;
    interface.version = 1;
    interface.method_count = sizeof requests / sizeof requests[0];
    interface.methods = requests;
    interface.name = "xdg_activation_v1";
    return &interface;
}
