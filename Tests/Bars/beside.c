/* beside - the least that a D-Bus service in C does, and the calls that are made to it and to appstated alike.
 *
 * Usage: beside serve ROWS                            own org.example.Beside: a property, and a list of ROWS rows
 *        beside get SERVICE PATH INTERFACE PROPERTY COUNT   read a property that often
 *        beside list SERVICE PATH INTERFACE COUNT     call ListApplications that often
 *        beside objects SERVICE PATH INTERFACE COUNT  call GetManagedObjects that often
 *        beside start COUNT PROGRAM [ARGUMENT...]     start a program that often, until it says READY=1
 * All but the first print the median and the 99th percentile of the times, in nanoseconds; the last one also those of
 * the processor time that the program has used by then. They use the system bus of DBUS_SYSTEM_BUS_ADDRESS. Exit
 * status: 0 success, 1 a failure, 2 usage.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void check(int result, const char *what) {
    if (result >= 0) return;
    fprintf(stderr, "beside: %s: %s\n", what, strerror(-result));
    exit(1);
}

/* ---- the service */

static unsigned rows;

static int get_level(sd_bus *bus, const char *path, const char *interface, const char *property,
                     sd_bus_message *reply, void *data, sd_bus_error *error) {
    (void)bus, (void)path, (void)interface, (void)property, (void)data, (void)error;
    return sd_bus_message_append(reply, "s", "normal");
}

static int list(sd_bus_message *call, void *data, sd_bus_error *error) {
    (void)data, (void)error;
    sd_bus_message *reply = NULL;
    int r = sd_bus_message_new_method_return(call, &reply);
    if (r >= 0) r = sd_bus_message_open_container(reply, 'a', "(osuus)");
    for (unsigned row = 0; r >= 0 && row < rows; row++) {
        char path[64], id[64];
        snprintf(path, sizeof path, "/org/appstate1/application/%u", row);
        snprintf(id, sizeof id, "org.example.Bars%u", row);
        r = sd_bus_message_append(reply, "(osuus)", path, id, row + 1000, 0, "background");
    }
    if (r >= 0) r = sd_bus_message_close_container(reply);
    if (r >= 0) r = sd_bus_send(NULL, reply, NULL);
    sd_bus_message_unref(reply);
    return r < 0 ? r : 1;
}

/* Each application as an object, with properties of the same types as those of org.appstate1.Application. */
static int get_property(sd_bus *bus, const char *path, const char *interface, const char *property,
                        sd_bus_message *reply, void *data, sd_bus_error *error) {
    (void)bus, (void)path, (void)interface, (void)data, (void)error;
    if (strcmp(property, "ID") == 0) return sd_bus_message_append(reply, "s", "org.example.Herd1");
    if (strcmp(property, "PID") == 0 || strcmp(property, "UID") == 0) return sd_bus_message_append(reply, "u", 1000);
    if (strcmp(property, "State") == 0) return sd_bus_message_append(reply, "s", "background");
    if (strcmp(property, "Suspension") == 0) return sd_bus_message_append(reply, "s", "manual");
    if (strstr(property, "Timestamp") || strcmp(property, "SuspensionDeadline") == 0)
        return sd_bus_message_append(reply, "t", (uint64_t)1855488);
    if (strcmp(property, "BackgroundModes") == 0 || strcmp(property, "Objections") == 0)
        return sd_bus_message_append(reply, "as", 0);
    if (strcmp(property, "SuspendHolds") == 0 || strcmp(property, "Inhibitors") == 0)
        return sd_bus_message_append(reply, "a(ss)", 0);
    if (strcmp(property, "BackgroundTasks") == 0) return sd_bus_message_append(reply, "a(tst)", 0);
    if (strcmp(property, "ContinuedTasks") == 0) return sd_bus_message_append(reply, "aa{sv}", 0);
    if (strcmp(property, "ReclaimRank") == 0) return sd_bus_message_append(reply, "u", 0);
    if (strcmp(property, "LaunchOptions") == 0)
        return sd_bus_message_append(reply, "a{sv}", 1, "first-launch", "b", 1);
    if (strcmp(property, "UserActivity") == 0) return sd_bus_message_append(reply, "(sa{sv})", "", 0);
    if (strcmp(property, "Unresponsive") == 0 || strcmp(property, "Session") == 0 || strcmp(property, "Unit") == 0)
        return sd_bus_message_append(reply, "s", "");
    return sd_bus_message_append(reply, "b", 0);
}

#define PROPERTY(name, type) SD_BUS_PROPERTY(name, type, get_property, 0, 0)

static const sd_bus_vtable objects[] = {
    SD_BUS_VTABLE_START(0),
    PROPERTY("ID", "s"), PROPERTY("PID", "u"), PROPERTY("UID", "u"), PROPERTY("State", "s"),
    PROPERTY("StateTimestamp", "t"), PROPERTY("StateTimestampMonotonic", "t"), PROPERTY("RegisteredTimestamp", "t"),
    PROPERTY("RegisteredTimestampMonotonic", "t"), PROPERTY("Launching", "b"), PROPERTY("Terminating", "b"),
    PROPERTY("Adopted", "b"), PROPERTY("Focused", "b"), PROPERTY("Visible", "b"), PROPERTY("Minimized", "b"),
    PROPERTY("Suspension", "s"), PROPERTY("Reclaimable", "b"), PROPERTY("ReclaimRank", "u"),
    PROPERTY("ProtectedDataAvailable", "b"), PROPERTY("Unresponsive", "s"), PROPERTY("UnsavedChanges", "b"),
    PROPERTY("BackgroundModes", "as"), PROPERTY("SuspendHolds", "a(ss)"), PROPERTY("SuspensionDeadline", "t"),
    PROPERTY("Objections", "as"), PROPERTY("Inhibitors", "a(ss)"), PROPERTY("BackgroundTasks", "a(tst)"),
    PROPERTY("ContinuedTasks", "aa{sv}"), PROPERTY("LaunchOptions", "a{sv}"), PROPERTY("UserActivity", "(sa{sv})"),
    PROPERTY("Session", "s"), PROPERTY("Unit", "s"),
    SD_BUS_VTABLE_END,
};

static const char above[] = "/org/appstate1/application";

static int find(sd_bus *bus, const char *path, const char *interface, void *data, void **found, sd_bus_error *error) {
    (void)bus, (void)interface, (void)data, (void)error;
    *found = NULL;
    return strlen(path) > sizeof above;
}

static int enumerate(sd_bus *bus, const char *prefix, void *data, char ***nodes, sd_bus_error *error) {
    (void)bus, (void)prefix, (void)data, (void)error;
    *nodes = calloc(rows + 1, sizeof **nodes);
    for (unsigned row = 0; *nodes && row < rows; row++)
        if (asprintf(&(*nodes)[row], "%s/%u", above, row) < 0) return -ENOMEM;
    return *nodes ? 0 : -ENOMEM;
}

static const sd_bus_vtable table[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_PROPERTY("MemoryPressure", "s", get_level, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
    SD_BUS_METHOD("ListApplications", "", "a(osuus)", list, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_VTABLE_END,
};

static int serve(void) {
    sd_event *event = NULL;
    sd_bus *bus = NULL;
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    check(sd_event_default(&event), "sd_event_default");
    check(sd_event_add_signal(event, NULL, SIGTERM, NULL, NULL), "sd_event_add_signal");
    check(sd_bus_open_system(&bus), "sd_bus_open_system");
    check(sd_bus_add_object_vtable(bus, NULL, "/org/appstate1", "org.example.Beside", table, NULL), "vtable");
    check(sd_bus_add_object_manager(bus, NULL, "/org/appstate1"), "sd_bus_add_object_manager");
    check(sd_bus_add_node_enumerator(bus, NULL, above, enumerate, NULL), "sd_bus_add_node_enumerator");
    check(sd_bus_add_fallback_vtable(bus, NULL, above, "org.example.Application", objects, find, NULL), "objects");
    check(sd_bus_request_name(bus, "org.example.Beside", 0), "sd_bus_request_name");
    check(sd_bus_attach_event(bus, event, 0), "sd_bus_attach_event");
    sd_notify(0, "READY=1");
    check(sd_event_loop(event), "sd_event_loop");
    sd_bus_flush_close_unref(bus);
    sd_event_unref(event);
    return 0;
}

/* ---- times */

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* The processor time of a process. */
static long long now_of(pid_t process) {
    struct timespec time = {0};
    clockid_t clock;
    check(-clock_getcpuclockid(process, &clock), "clock_getcpuclockid");
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int smaller(const void *a, const void *b) {
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

static int print(long long *times, int count) {
    qsort(times, count, sizeof *times, smaller);
    printf("%lld %lld\n", times[count / 2], times[count * 99 / 100]);
    return 0;
}

/* ---- the calls */

static int call(char **words, int count, const char *member, const char *interface, const char *property) {
    sd_bus *bus = NULL;
    long long *times = calloc(count, sizeof *times);
    check(sd_bus_open_system(&bus), "sd_bus_open_system");
    for (int i = 0; i < count; i++) {
        sd_bus_message *question = NULL, *reply = NULL;
        sd_bus_error error = SD_BUS_ERROR_NULL;
        check(sd_bus_message_new_method_call(bus, &question, words[0], words[1], interface, member), "new call");
        if (property) check(sd_bus_message_append(question, "ss", words[2], property), "append");
        long long begin = now();
        int r = sd_bus_call(bus, question, 0, &error, &reply);
        times[i] = now() - begin;
        if (r < 0) fprintf(stderr, "beside: %s\n", error.message ? error.message : "");
        check(r, member);
        sd_bus_message_unref(question);
        sd_bus_message_unref(reply);
    }
    sd_bus_flush_close_unref(bus);
    return print(times, count);
}

/* ---- starting a program */

static int start(int count, char **command) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char directory[] = "/tmp/beside.XXXXXX", file[64];
    long long *times = calloc(count, sizeof *times), *used = calloc(count, sizeof *used);
    if (!mkdtemp(directory)) check(-errno, "mkdtemp");
    snprintf(file, sizeof file, "%s/notify", directory);
    strcpy(address.sun_path, file);
    int notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (notify < 0 || bind(notify, (struct sockaddr *)&address, sizeof address)) check(-errno, "bind");
    struct timeval limit = {.tv_sec = 30};
    setsockopt(notify, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setenv("NOTIFY_SOCKET", file, 1);
    for (int i = 0; i < count; i++) {
        char text[4096];
        pid_t child;
        long long begin = now();
        check(-posix_spawn(&child, command[0], NULL, NULL, command, environ), command[0]);
        int ready = 0;
        while (!ready) {
            ssize_t size = recv(notify, text, sizeof text - 1, 0);
            if (size < 0) {
                kill(child, SIGKILL);
                check(-errno, "no READY=1");
            }
            text[size] = 0;
            ready = strncmp(text, "READY=1", 7) == 0 || strstr(text, "\nREADY=1") != NULL;
        }
        times[i] = now() - begin;
        used[i] = now_of(child);
        kill(child, SIGTERM);
        waitpid(child, NULL, 0);
        while (recv(notify, text, sizeof text, MSG_DONTWAIT) >= 0) {}
    }
    unlink(file);
    rmdir(directory);
    print(times, count);
    return print(used, count);
}

int main(int count, char **words) {
    if (count == 3 && strcmp(words[1], "serve") == 0) {
        rows = atoi(words[2]);
        return serve();
    }
    if (count == 7 && strcmp(words[1], "get") == 0 && atoi(words[6]) > 0)
        return call(words + 2, atoi(words[6]), "Get", "org.freedesktop.DBus.Properties", words[5]);
    if (count == 6 && strcmp(words[1], "list") == 0 && atoi(words[5]) > 0)
        return call(words + 2, atoi(words[5]), "ListApplications", words[4], NULL);
    if (count == 6 && strcmp(words[1], "objects") == 0 && atoi(words[5]) > 0)
        return call(words + 2, atoi(words[5]), "GetManagedObjects", "org.freedesktop.DBus.ObjectManager", NULL);
    if (count >= 4 && strcmp(words[1], "start") == 0 && atoi(words[2]) > 0)
        return start(atoi(words[2]), words + 3);
    fprintf(stderr, "usage: beside serve ROWS | get SERVICE PATH INTERFACE PROPERTY COUNT"
                    " | list|objects SERVICE PATH INTERFACE COUNT | start COUNT PROGRAM [ARGUMENT...]\n");
    return 2;
}
