// SPDX-License-Identifier: Apache-2.0
//
// An application with the whole life cycle, on sd-bus. It counts how often it was in the background, and saves the
// count.
//
//     cc application.c -o application $(pkg-config --cflags --libs libsystemd)
//
// Uses the system bus, or the one that DBUS_SYSTEM_BUS_ADDRESS names.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-bus.h>

static const char name[] = "org.appstate1";
static const char interface[] = "org.appstate1.Application";

static const char bus_name[] = "org.freedesktop.DBus";

static sd_bus *bus;
static char path[64];
// The daemon's connection. Any process may send us a signal, and a forged WillTerminate would end us: the signals of
// others do not count. A match rule does not keep them out.
static char server[256];
static uint8_t count;

// Makes a call whose reply carries nothing. It does not wait, because the daemon handles the calls of one connection in
// order.
static void tell(const char *member, const char *types, uint64_t argument) {
    int r = sd_bus_call_method_async(bus, NULL, name, path, interface, member, NULL, NULL, types, argument);
    if (r < 0)
        fprintf(stderr, "application: %s: %s\n", member, strerror(-r));
}

static void save(void) {
    sd_bus_message *call = NULL;
    if (sd_bus_message_new_method_call(bus, &call, name, path, interface, "SaveState") >= 0 &&
        sd_bus_message_append_array(call, 'y', &count, 1) >= 0)
        sd_bus_call_async(bus, NULL, call, NULL, NULL, 0);
    sd_bus_message_unref(call);
}

static void load(void) {
    sd_bus_message *reply = NULL;
    const void *bytes;
    size_t size;
    if (sd_bus_call_method(bus, name, path, interface, "LoadState", NULL, &reply, NULL) >= 0 &&
        sd_bus_message_read_array(reply, 'y', &bytes, &size) > 0 && size == 1)
        memcpy(&count, bytes, 1);
    printf("restored %d\n", count);
    sd_bus_message_unref(reply);
}

static int is_from(sd_bus_message *message, const char *sender) {
    const char *own = sd_bus_message_get_sender(message);
    return own && !strcmp(own, sender);
}

// The next daemon has the same application at the same path, with the same delegate. An application that must not miss
// a change reads State now.
static int on_owner(sd_bus_message *message, void *userdata, sd_bus_error *error) {
    const char *changed, *before, *owner;

    (void) userdata;
    (void) error;
    if (sd_bus_message_read(message, "sss", &changed, &before, &owner) >= 0 && is_from(message, bus_name) &&
        !strcmp(changed, name))
        snprintf(server, sizeof server, "%s", owner);
    return 0;
}

static int on_signal(sd_bus_message *message, void *userdata, sd_bus_error *error) {
    const char *member = sd_bus_message_get_member(message);
    uint64_t serial = 0, deadline = 0;

    (void) userdata;
    (void) error;
    if (!sd_bus_message_is_signal(message, interface, NULL) || !is_from(message, server) ||
        strcmp(sd_bus_message_get_path(message), path))
        return 0;
    printf("%s\n", member);
    if (!strcmp(member, "WillFinishLaunching")) {
        load();
    } else if (!strcmp(member, "DidFinishLaunching")) {
        // An application would make its windows here.
        tell("FinishLaunching", NULL, 0);
    } else if (!strcmp(member, "DidEnterBackground")) {
        count++;
        save();
    } else if (!strcmp(member, "WillTerminate")) {
        save();
    }
    // Where there is nothing to acknowledge, the serial is 0, and the call does nothing.
    if ((!strcmp(member, "DidEnterBackground") || !strcmp(member, "WillTerminate") ||
         !strcmp(member, "ProtectedDataWillBecomeUnavailable")) &&
        sd_bus_message_read(message, "tt", &serial, &deadline) >= 0)
        tell("Acknowledge", "t", serial);
    fflush(stdout);
    return 1;
}

int main(int argc, char **argv) {
    sd_bus_error error = SD_BUS_ERROR_NULL;
    sd_bus_message *reply = NULL;
    const char *object = "";

    int r = sd_bus_open_system(&bus);
    // Add the filter before registering, because the first signals follow the reply at once.
    if (r >= 0)
        r = sd_bus_add_filter(bus, NULL, on_signal, NULL);
    if (r >= 0)
        r = sd_bus_add_match(
            bus, NULL,
            "type='signal',sender='org.freedesktop.DBus',path='/org/freedesktop/DBus',"
            "interface='org.freedesktop.DBus',member='NameOwnerChanged',arg0='org.appstate1'",
            on_owner, NULL);
    if (r >= 0)
        r = sd_bus_call_method(
            bus, name, "/org/appstate1", "org.appstate1.Manager", "Register", &error, &reply, "sua{sv}",
            argc > 1 ? argv[1] : "org.example.Counter", 0, 0);
    if (r >= 0)
        r = sd_bus_message_read(reply, "o", &object);
    snprintf(path, sizeof path, "%s", object);
    if (reply)
        snprintf(server, sizeof server, "%s", sd_bus_message_get_sender(reply));
    sd_bus_message_unref(reply);
    // Run until SIGTERM, which follows the acknowledgement of WillTerminate.
    while (r >= 0)
        if ((r = sd_bus_process(bus, NULL)) == 0)
            r = sd_bus_wait(bus, UINT64_MAX);
    fprintf(stderr, "application: %s\n", error.message ? error.message : strerror(-r));
    return 1;
}
