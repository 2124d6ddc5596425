#pragma once

#include <stdint.h>
#include <sys/uio.h>
#include <xcb/res.h>
#include <xcb/xcb.h>
#include <xcb/xcbext.h>
#include <xcb/xfixes.h>

// xcb_res_id is a variable that libxcb writes to, so Swift treats it as unprotected shared state.
static inline const xcb_query_extension_reply_t *cxcb_res_extension(xcb_connection_t *connection) {
    return xcb_get_extension_data(connection, &xcb_res_id);
}

// The same for xcb_xfixes_id.
static inline const xcb_query_extension_reply_t *cxcb_xfixes_extension(xcb_connection_t *connection) {
    return xcb_get_extension_data(connection, &xcb_xfixes_id);
}

// RRGetMonitors of RandR 1.5, sent without libxcb-randr, of which nothing else is needed. 0: the server has no RandR.
static inline unsigned int cxcb_get_monitors(xcb_connection_t *connection, xcb_window_t root) {
    static xcb_extension_t extension = {"RANDR", 0};
    const xcb_query_extension_reply_t *found = xcb_get_extension_data(connection, &extension);
    if (!found || !found->present)
        return 0;
    struct {
        uint8_t opcode, minor;
        uint16_t length;
        xcb_window_t window;
        uint8_t is_active, padding[3];
    } request = {.window = root, .is_active = 1};
    // libxcb uses the two before the first.
    struct iovec parts[3] = {{0}, {0}, {&request, sizeof request}};
    xcb_protocol_request_t description = {.count = 1, .ext = &extension, .opcode = 42};
    return xcb_send_request(connection, XCB_REQUEST_CHECKED, parts + 2, &description);
}

// The response type of an event, which is a C union that Swift reads only through pointers to its parts.
static inline uint8_t cxcb_event_type(const xcb_generic_event_t *event) {
    // The highest bit says that another client sent the event with SendEvent.
    return event->response_type & 0x7f;
}
