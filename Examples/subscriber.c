// SPDX-License-Identifier: Apache-2.0
//
// Prints every change of state of every application that the caller may see.
//
//     cc subscriber.c -o subscriber $(pkg-config --cflags --libs libsystemd)
//
// Uses the system bus, or the one that DBUS_SYSTEM_BUS_ADDRESS names.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-bus.h>

static const char name[] = "org.appstate1";
static const char path[] = "/org/appstate1";
static const char manager[] = "org.appstate1.Manager";
static const char bus_name[] = "org.freedesktop.DBus";

// The daemon's connection. Any process may send us a signal, so the signals of others do not count. A match rule does
// not keep them out.
static char server[256];

static int refused(const char *what, const sd_bus_error *error, int result) {
    const char *why = error && error->message ? error->message : strerror(-result);
    fprintf(stderr, "subscriber: %s: %s\n", what, why);
    return result;
}

static int is_from(sd_bus_message *message, const char *sender) {
    const char *own = sd_bus_message_get_sender(message);
    return own && !strcmp(own, sender);
}

static int list_applications(sd_bus *bus) {
    sd_bus_error error = SD_BUS_ERROR_NULL;
    sd_bus_message *reply = NULL;
    const char *object, *app_id, *state;
    uint32_t pid, uid;

    int r = sd_bus_call_method(bus, name, path, manager, "ListApplications", &error, &reply, NULL);
    if (r < 0) {
        refused("ListApplications", &error, r);
        sd_bus_error_free(&error);
        return r;
    }
    r = sd_bus_message_enter_container(reply, 'a', "(osuus)");
    while (r >= 0 && (r = sd_bus_message_read(reply, "(osuus)", &object, &app_id, &pid, &uid, &state)) > 0)
        printf("%s [%" PRIu32 "] is %s\n", app_id, pid, state);
    sd_bus_message_unref(reply);
    return r;
}

// The daemon sends signals only to subscribers, so a match alone receives nothing. Subscribe first and list second, so
// that no change is missed in between.
static int subscribe(sd_bus *bus) {
    sd_bus_error error = SD_BUS_ERROR_NULL;
    sd_bus_message *reply = NULL;

    int r = sd_bus_call_method(bus, name, path, manager, "Subscribe", &error, &reply, NULL);
    if (r < 0) {
        refused("Subscribe", &error, r);
        sd_bus_error_free(&error);
        return r;
    }
    snprintf(server, sizeof server, "%s", sd_bus_message_get_sender(reply));
    sd_bus_message_unref(reply);
    return list_applications(bus);
}

// A subscription ends with the daemon: the next one knows nothing of it, and things have changed meanwhile.
static int on_owner(sd_bus_message *message, void *userdata, sd_bus_error *error) {
    const char *changed, *before, *owner;

    (void) userdata;
    (void) error;
    int r = sd_bus_message_read(message, "sss", &changed, &before, &owner);
    if (r < 0 || !is_from(message, bus_name) || strcmp(changed, name) || !strcmp(owner, server))
        return 0;
    server[0] = 0;
    if (!*owner)
        printf("appstated is not there; waiting for it\n");
    else if (subscribe(sd_bus_message_get_bus(message)) < 0)
        // Nothing would be received, so the main loop ends.
        sd_bus_close(sd_bus_message_get_bus(message));
    return 0;
}

static int on_signal(sd_bus_message *message, void *userdata, sd_bus_error *error) {
    const char *object, *app_id, *from, *to, *reason;
    uint32_t pid;
    int r = 0;

    (void) userdata;
    (void) error;
    if (!is_from(message, server))
        return 0;
    if (sd_bus_message_is_signal(message, manager, "StateChanged")) {
        r = sd_bus_message_read(message, "osusss", &object, &app_id, &pid, &from, &to, &reason);
        if (r >= 0)
            printf("%s [%" PRIu32 "] %s -> %s (%s)\n", app_id, pid, from, to, reason);
    } else if (sd_bus_message_is_signal(message, manager, "ApplicationAdded")) {
        r = sd_bus_message_read(message, "osu", &object, &app_id, &pid);
        if (r >= 0)
            printf("%s [%" PRIu32 "] was registered\n", app_id, pid);
    } else if (sd_bus_message_is_signal(message, manager, "ApplicationRemoved")) {
        r = sd_bus_message_read(message, "osus", &object, &app_id, &pid, &reason);
        if (r >= 0)
            printf("%s [%" PRIu32 "] is gone (%s)\n", app_id, pid, reason);
    } else if (sd_bus_message_is_signal(message, manager, "Resync")) {
        // This process was suspended, or did not read, so its knowledge is out of date.
        r = list_applications(sd_bus_message_get_bus(message));
    }
    return r < 0 ? r : 0;
}

int main(void) {
    sd_bus *bus = NULL;

    setvbuf(stdout, NULL, _IOLBF, 0);
    int r = sd_bus_open_system(&bus);
    if (r < 0) {
        refused("no system bus", NULL, r);
        return 1;
    }
    r = sd_bus_match_signal(bus, NULL, name, path, manager, NULL, on_signal, NULL);
    if (r >= 0)
        r = sd_bus_add_match(
            bus, NULL,
            "type='signal',sender='org.freedesktop.DBus',path='/org/freedesktop/DBus',"
            "interface='org.freedesktop.DBus',member='NameOwnerChanged',arg0='org.appstate1'",
            on_owner, NULL);
    if (r < 0) {
        refused("match", NULL, r);
        goto end;
    }
    r = subscribe(bus);
    while (r >= 0) {
        r = sd_bus_process(bus, NULL);
        if (r == 0)
            r = sd_bus_wait(bus, UINT64_MAX);
    }
    refused("the bus has gone away", NULL, r);
end:
    sd_bus_unref(bus);
    return r < 0;
}
