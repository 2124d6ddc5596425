#pragma once

#include <wayland-client.h>

// The manager, the device and the offer of ext_data_control_v1, version 1, and of zwlr_data_control_v1, version 2: the
// clipboard and the primary selection, for clipboard managers. The two protocols differ only in their names.

enum cwayland_data_control_family {
    CWAYLAND_DATA_CONTROL_EXT = 0,
    CWAYLAND_DATA_CONTROL_WLR = 1,
};

enum cwayland_data_control_manager_request {
    CWAYLAND_DATA_CONTROL_MANAGER_CREATE_DATA_SOURCE = 0,
    CWAYLAND_DATA_CONTROL_MANAGER_GET_DATA_DEVICE = 1,
};

enum cwayland_data_control_device_request {
    CWAYLAND_DATA_CONTROL_DEVICE_SET_SELECTION = 0,
    CWAYLAND_DATA_CONTROL_DEVICE_SET_PRIMARY_SELECTION = 2,
};

enum cwayland_data_control_device_event {
    CWAYLAND_DATA_CONTROL_DEVICE_DATA_OFFER = 0,
    CWAYLAND_DATA_CONTROL_DEVICE_SELECTION = 1,
    CWAYLAND_DATA_CONTROL_DEVICE_FINISHED = 2,
    CWAYLAND_DATA_CONTROL_DEVICE_PRIMARY_SELECTION = 3,
};

enum cwayland_data_control_offer_request {
    CWAYLAND_DATA_CONTROL_OFFER_DESTROY = 1,
};

static inline const struct wl_interface *cwayland_data_control_offer_interface(int family) {
    static struct wl_interface interfaces[2];
    static const struct wl_interface *plain[2];
    static const struct wl_message requests[] = {{"receive", "sh", plain}, {"destroy", "", plain}};
    static const struct wl_message events[] = {{"offer", "s", plain}};
    struct wl_interface *interface = &interfaces[family];
    if (interface->name) return interface;
    interface->version = family == CWAYLAND_DATA_CONTROL_EXT ? 1 : 2;
    interface->method_count = sizeof requests / sizeof requests[0];
    interface->methods = requests;
    interface->event_count = sizeof events / sizeof events[0];
    interface->events = events;
    interface->name = family == CWAYLAND_DATA_CONTROL_EXT ? "ext_data_control_offer_v1" : "zwlr_data_control_offer_v1";
    return interface;
}

static inline const struct wl_interface *cwayland_data_control_device_interface(int family) {
    static struct wl_interface interfaces[2];
    static const struct wl_interface *plain[1];
    static const struct wl_interface *offer[2][1];
    static struct wl_message requests[2][3];
    static struct wl_message events[2][4];
    struct wl_interface *interface = &interfaces[family];
    if (interface->name) return interface;
    offer[family][0] = cwayland_data_control_offer_interface(family);
    requests[family][0] = (struct wl_message){"set_selection", "?o", plain};
    requests[family][1] = (struct wl_message){"destroy", "", plain};
    requests[family][2] = (struct wl_message){
        "set_primary_selection", family == CWAYLAND_DATA_CONTROL_EXT ? "?o" : "2?o", plain};
    events[family][0] = (struct wl_message){"data_offer", "n", offer[family]};
    events[family][1] = (struct wl_message){"selection", "?o", offer[family]};
    events[family][2] = (struct wl_message){"finished", "", plain};
    events[family][3] = (struct wl_message){
        "primary_selection", family == CWAYLAND_DATA_CONTROL_EXT ? "?o" : "2?o", offer[family]};
    interface->version = family == CWAYLAND_DATA_CONTROL_EXT ? 1 : 2;
    interface->method_count = 3;
    interface->methods = requests[family];
    interface->event_count = 4;
    interface->events = events[family];
    interface->name = family == CWAYLAND_DATA_CONTROL_EXT ? "ext_data_control_device_v1" : "zwlr_data_control_device_v1";
    return interface;
}

static inline const struct wl_interface *cwayland_data_control_manager_interface(int family) {
    static struct wl_interface interfaces[2];
    static const struct wl_interface *plain[1];
    static const struct wl_interface *device[2][2];
    static struct wl_message requests[2][2];
    struct wl_interface *interface = &interfaces[family];
    if (interface->name) return interface;
    device[family][0] = cwayland_data_control_device_interface(family);
    device[family][1] = &wl_seat_interface;
    requests[family][0] = (struct wl_message){"create_data_source", "n", plain};
    requests[family][1] = (struct wl_message){"get_data_device", "no", device[family]};
    interface->version = family == CWAYLAND_DATA_CONTROL_EXT ? 1 : 2;
    interface->method_count = 2;
    interface->methods = requests[family];
    interface->name = family == CWAYLAND_DATA_CONTROL_EXT ? "ext_data_control_manager_v1" : "zwlr_data_control_manager_v1";
    return interface;
}
