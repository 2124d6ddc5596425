// delegate - an application with a delegate, for machines without Python. It registers itself in the background and
// prints the signals that it receives.
//
// Usage: delegate ID [save TEXT | load | keep]
//   save  saves TEXT as its state        load  prints the saved state
//   keep  appends each URL that it must open to the saved text, then saves and prints the text
// It runs until it is killed.

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>

static const char service[] = "org.appstate1";
static const char application[] = "org.appstate1.Application";
static sd_bus *bus;
static char *path;
static int keeps;
static char kept[1024];

static void check(int result, const char *what) {
    if (result >= 0) return;
    fprintf(stderr, "delegate: %s: %s\n", what, strerror(-result));
    exit(1);
}

static void acknowledge(uint64_t serial) {
    if (serial == 0) return;
    check(sd_bus_call_method(bus, service, path, application, "Acknowledge", NULL, NULL, "t", serial), "Acknowledge");
}

// Prints the launch options that are strings or booleans, one on each line.
static void print_options(sd_bus_message *message) {
    check(sd_bus_message_enter_container(message, 'a', "{sv}"), "options");
    while (sd_bus_message_enter_container(message, 'e', "sv") > 0) {
        const char *key, *type, *text;
        int number;
        check(sd_bus_message_read(message, "s", &key), "option");
        check(sd_bus_message_peek_type(message, NULL, &type), key);
        if (strcmp(type, "s") == 0) {
            check(sd_bus_message_read(message, "v", "s", &text), key);
            printf("option %s %s\n", key, text);
        } else if (strcmp(type, "b") == 0) {
            check(sd_bus_message_read(message, "v", "b", &number), key);
            printf("option %s %s\n", key, number ? "true" : "false");
        } else {
            check(sd_bus_message_skip(message, "v"), key);
        }
        check(sd_bus_message_exit_container(message), key);
    }
}

static void save(const char *text) {
    sd_bus_message *call;
    check(sd_bus_message_new_method_call(bus, &call, service, path, application, "SaveState"), "SaveState");
    check(sd_bus_message_append_array(call, 'y', text, strlen(text)), "SaveState");
    check(sd_bus_call(bus, call, 0, NULL, NULL), "SaveState");
    sd_bus_message_unref(call);
    puts("saved");
}

static void load(void) {
    sd_bus_message *answer;
    const void *bytes;
    size_t count;
    check(sd_bus_call_method(bus, service, path, application, "LoadState", NULL, &answer, ""), "LoadState");
    check(sd_bus_message_read_array(answer, 'y', &bytes, &count), "LoadState");
    snprintf(kept, sizeof kept, "%.*s", (int)count, (const char *)bytes);
    printf("loaded %s\n", kept);
    sd_bus_message_unref(answer);
}

static void open_urls(sd_bus_message *message) {
    const char *url;
    check(sd_bus_message_enter_container(message, 'a', "s"), "OpenURLs");
    while (sd_bus_message_read(message, "s", &url) > 0) {
        size_t length = strlen(kept);
        snprintf(kept + length, sizeof kept - length, length > 0 ? "+%s" : "%s", url);
    }
    save(kept);
    printf("text %s\n", kept);
}

static int on_signal(sd_bus_message *message, void *data, sd_bus_error *error) {
    (void)data, (void)error;
    const char *member = sd_bus_message_get_member(message), *text;
    if (path == NULL || strcmp(sd_bus_message_get_path(message), path) != 0) return 0;
    if (sd_bus_message_has_signature(message, "s") && sd_bus_message_read(message, "s", &text) > 0)
        printf("%s %s\n", member, text);
    else
        printf("%s\n", member);
    uint64_t serial, deadline;
    if (sd_bus_message_has_signature(message, "tt") && sd_bus_message_read(message, "tt", &serial, &deadline) > 0)
        acknowledge(serial);
    if (strcmp(member, "WillFinishLaunching") == 0) print_options(message);
    if (keeps && strcmp(member, "OpenURLs") == 0) open_urls(message);
    return 0;
}

int main(int count, char **words) {
    if (count < 2) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    check(sd_bus_open_system(&bus), "the system bus");
    // Match before registering, because the first signals follow the reply at once.
    check(sd_bus_match_signal(bus, NULL, service, NULL, application, NULL, on_signal, NULL), "the signals");
    sd_bus_message *answer;
    const char *own;
    check(sd_bus_call_method(bus, service, "/org/appstate1", "org.appstate1.Manager", "Register", NULL, &answer,
                             "sua{sv}", words[1], 0, 2, "launch-mode", "s", "background", "suspension", "s", "manual"),
          "Register");
    check(sd_bus_message_read(answer, "o", &own), "Register");
    path = strdup(own);
    sd_bus_message_unref(answer);
    printf("is %s\n", path);
    if (count > 3 && strcmp(words[2], "save") == 0) save(words[3]);
    keeps = count > 2 && strcmp(words[2], "keep") == 0;
    if (keeps || (count > 2 && strcmp(words[2], "load") == 0)) load();
    check(sd_bus_call_method(bus, service, path, application, "FinishLaunching", NULL, NULL, ""), "FinishLaunching");
    for (;;) {
        int result = sd_bus_process(bus, NULL);
        check(result, "the bus");
        if (result == 0) check(sd_bus_wait(bus, UINT64_MAX), "the bus");
    }
}
