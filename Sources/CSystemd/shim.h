#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <systemd/sd-journal.h>
#include <systemd/sd-login.h>

// The rows of a vtable are written through the macros of sd-bus-vtable.h: Swift imports neither macros that
// expand to initializers nor the bit fields behind them, and the layout is the header's to choose.

// The start row must carry the address of libsystemd's own sd_bus_object_vtable_format, which is how the
// library knows that the rows have argument names; Swift would hand over a copy's address.
static inline void csystemd_vtable_start(sd_bus_vtable *row) {
    *row = (sd_bus_vtable) SD_BUS_VTABLE_START(0);
}

// names: the names of all arguments, in and out, each closed by a NUL, and one more NUL. The macro joins two
// literals; here they come joined. Unprivileged, because who may call what is decided by the handler: without
// the flag libsystemd asks for CAP_SYS_ADMIN.
static inline void csystemd_vtable_method(
    sd_bus_vtable *row, const char *member, const char *in, const char *out, const char *names,
    sd_bus_message_handler_t handler, size_t offset) {
    *row = (sd_bus_vtable) SD_BUS_METHOD_WITH_NAMES_OFFSET(
        member, in, names, out, , handler, offset, SD_BUS_VTABLE_UNPRIVILEGED);
}

// flags: one of the SD_BUS_VTABLE_PROPERTY_ constants, or 0; they are 64-bit enumerators, which Swift imports
// with changing types.
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

// Constants as functions: enumerators above 32 bits are imported differently from compiler to compiler.
static inline uint64_t csystemd_property_const(void) { return SD_BUS_VTABLE_PROPERTY_CONST; }
static inline uint64_t csystemd_property_change(void) { return SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE; }
static inline uint64_t csystemd_property_invalidation(void) {
    return SD_BUS_VTABLE_PROPERTY_EMITS_INVALIDATION;
}
