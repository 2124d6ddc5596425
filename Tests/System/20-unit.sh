#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

systemctl stop appstated
same 'a D-Bus call starts the daemon' 's "0.1.0"' "$(alice busctl get-property "$service" "$root" "$manager" Version)"
check 'systemd reports it as active' systemctl is-active appstated

daemon=$(main_pid)
same 'its cgroup is directly in the root slice' /appstated.service "$(sed -n 's/^0:://p' "/proc/$daemon/cgroup")"
check 'its exposure is 1.6 at most' systemd-analyze security --no-pager --threshold=16 appstated.service
systemd-analyze security --no-pager appstated.service | sed -n 's/^→ /# /p'
same 'four capabilities are in effect' 0000000000880022 "$(status_of "$daemon" CapEff)"
same 'its bounding set adds only CAP_SYS_RESOURCE' 0 "$((0x$(status_of "$daemon" CapBnd) & ~0x1880022))"
same 'it can gain no new privileges' 1 "$(status_of "$daemon" NoNewPrivs)"
same 'system calls are filtered' 2 "$(status_of "$daemon" Seccomp)"
check 'it sees a read-only file system' grep -qE ' / / ro' "/proc/$daemon/mountinfo"
check 'it has its own network namespace' test "$(readlink "/proc/$daemon/ns/net")" != "$(readlink /proc/1/ns/net)"
same 'its user owns no files outside its directories' '' "$(find / -xdev -user appstated \
    -not -path '/run/*' -not -path '/var/lib/appstated*' -not -path '/proc/*' 2>/dev/null)"
same 'it has no thread beside the loop and the worker' appstated \
    "$(cat "/proc/$daemon"/task/*/comm | grep -vx appstated-work)"
check 'it serves the memory monitor of GLib' busctl status org.freedesktop.LowMemoryMonitor

if [ "$where" = vm ]; then
    same 'stops are detected by the tracepoint' events "$(property StopDetection)"
    same 'its memory is reserved' 16777216 "$(cat "/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$daemon/cgroup")/memory.min")"
    check 'its memory is locked' test "$(status_of "$daemon" VmLck | tr -dc 0-9)" -gt 0
    same 'it reports no missing feature' '' "$(journalctl --no-pager -o cat -u appstated "_PID=$daemon" |
        grep -E 'without|polling|cannot be distinguished|may have to|stalls alone')"
else
    skip 'stops are detected by the tracepoint' 'a container has no tracepoints'
    skip 'its memory is reserved' 'the memory belongs to the host'
    skip 'its memory is locked' 'a container has no permission'
    skip 'it reports no missing feature' 'a container lacks some features'
fi

online=/sys/devices/system/cpu/cpu1/online
if [ "$where" = vm ] && [ -w "$online" ]; then
    systemctl restart appstated
    # Soon after its start, the daemon does not hand over to a successor, and it may not open the CPU's events itself.
    echo 0 >"$online"
    echo 1 >"$online"
    for _ in $(seq 50); do
        [ "$(property StopDetection)" = events ] || break
        sleep 0.2
    done
    same 'it polls after the events of a CPU that was offline have ended' polling "$(property StopDetection)"
    systemctl restart appstated
    same 'a new start receives the events again' events "$(property StopDetection)"
else
    skip 'it polls after the events of a CPU that was offline have ended' 'no CPU can be turned off here'
    skip 'a new start receives the events again' 'no CPU can be turned off here'
fi
