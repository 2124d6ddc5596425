#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <systemd/sd-journal.h>
#include <systemd/sd-login.h>

// The rows of a vtable are written with the macros of sd-bus-vtable.h. Swift imports neither macros that expand to
// initializers nor the bit fields behind them, and the layout is defined by the header.

// The start row must contain the address of libsystemd's own sd_bus_object_vtable_format, from which the
// library knows that the rows have argument names. Swift would pass the address of a copy.
static inline void csystemd_vtable_start(sd_bus_vtable *row) {
    *row = (sd_bus_vtable) SD_BUS_VTABLE_START(0);
}

// names: the names of all arguments, in and out, each terminated by a NUL, and one more NUL. The macro joins two
// literals; here they are passed joined. The method is unprivileged because its handler decides who may call it:
// without the flag libsystemd requires CAP_SYS_ADMIN.
static inline void csystemd_vtable_method(
    sd_bus_vtable *row, const char *member, const char *in, const char *out, const char *names,
    sd_bus_message_handler_t handler, size_t offset) {
    *row = (sd_bus_vtable) SD_BUS_METHOD_WITH_NAMES_OFFSET(
        member, in, names, out, , handler, offset, SD_BUS_VTABLE_UNPRIVILEGED);
}

// flags: one of the SD_BUS_VTABLE_PROPERTY_ constants, or 0. They are 64-bit enumerators, which Swift imports with
// varying types.
static inline void csystemd_vtable_property(
    sd_bus_vtable *row, const char *member, const char *signature, sd_bus_property_get_t get, size_t offset,
    uint64_t flags) {
    *row = (sd_bus_vtable) SD_BUS_PROPERTY(member, signature, get, offset, flags);
}

// names: as for a method.
static inline void csystemd_vtable_signal(
    sd_bus_vtable *row, const char *member, const char *signature, const char *names) {
    *row = (sd_bus_vtable) SD_BUS_SIGNAL_WITH_NAMES(member, signature, names, 0);
}

static inline void csystemd_vtable_end(sd_bus_vtable *row) {
    *row = (sd_bus_vtable) SD_BUS_VTABLE_END;
}

// Constants as functions: compilers differ in how they import enumerators above 32 bits.
static inline uint64_t csystemd_name_allow_replacement(void) { return SD_BUS_NAME_ALLOW_REPLACEMENT; }
static inline uint64_t csystemd_name_replace_existing(void) { return SD_BUS_NAME_REPLACE_EXISTING; }
static inline uint64_t csystemd_property_const(void) { return SD_BUS_VTABLE_PROPERTY_CONST; }
static inline uint64_t csystemd_property_change(void) { return SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE; }
static inline uint64_t csystemd_property_invalidation(void) {
    return SD_BUS_VTABLE_PROPERTY_EMITS_INVALIDATION;
}

// Measures the content of a message, and stops as soon as it exceeds *left bytes. A string counts by its length, an
// array of bytes by its size, everything else as eight bytes, containers too. libsystemd does not report a size, and a
// message from an untrusted sender should not be read in full just to measure it; nothing is created from what is
// traversed. 1: more; 0: not more; -EBADF: a descriptor is named that the message does not carry; another negative
// number: the message is broken.
static inline int csystemd_message_weigh(sd_bus_message *message, size_t *left) {
    for (;;) {
        char type;
        const char *contents;
        int result = sd_bus_message_peek_type(message, &type, &contents);
        if (result <= 0)
            return result;
        size_t size = 8;
        const void *data;
        const char *text;
        uint64_t number;
        switch (type) {
        case 'a':
            if (contents && contents[0] == 'y' && !contents[1]) {
                result = sd_bus_message_read_array(message, 'y', &data, &size);
                if (result >= 0) {
                    size += 8;
                    break;
                }
                // libsystemd lends no array of a message in the other byte order.
                if (result != -EOPNOTSUPP)
                    return result;
                size = 8;
            }
            // fall through
        case 'v':
        case 'r':
        case 'e':
            result = sd_bus_message_enter_container(message, type, contents);
            if (result < 0)
                return result;
            result = csystemd_message_weigh(message, left);
            if (result != 0)
                return result;
            result = sd_bus_message_exit_container(message);
            if (result < 0)
                return result;
            break;
        case 's':
        case 'o':
        case 'g':
            result = sd_bus_message_read_basic(message, type, &text);
            if (result < 0)
                return result;
            size += strlen(text);
            break;
        default:
            result = sd_bus_message_read_basic(message, type, &number);
            if (result < 0)
                return type == 'h' ? -EBADF : result;
        }
        if (size > *left)
            return 1;
        *left -= size;
    }
}
