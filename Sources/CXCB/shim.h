#pragma once

#include <stdint.h>
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

// The response type of an event, which is a C union that Swift reads only through pointers to its parts.
static inline uint8_t cxcb_event_type(const xcb_generic_event_t *event) {
    // The highest bit says that another client sent the event with SendEvent.
    return event->response_type & 0x7f;
}
