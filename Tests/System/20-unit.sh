#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

systemctl stop appstated
same 'a call to the bus starts it' 's "0.1.0"' "$(alice busctl get-property "$service" "$root" "$manager" Version)"
check 'and systemd knows of it' systemctl is-active appstated

daemon=$(main_pid)
same 'it lies in no slice but the root' /appstated.service "$(sed -n 's/^0:://p' "/proc/$daemon/cgroup")"
check 'exposure is 1.6 at most' systemd-analyze security --no-pager --threshold=16 appstated.service
systemd-analyze security --no-pager appstated.service | sed -n 's/^→ /# /p'
same 'four capabilities are in force' 0000000000880022 "$(status_of "$daemon" CapEff)"
same 'no other but CAP_SYS_RESOURCE can be had' 0 "$((0x$(status_of "$daemon" CapBnd) & ~0x1880022))"
same 'no new privileges' 1 "$(status_of "$daemon" NoNewPrivs)"
same 'system calls are filtered' 2 "$(status_of "$daemon" Seccomp)"
check 'the machine is read-only to it' grep -qE ' / / ro' "/proc/$daemon/mountinfo"
check 'the network is not the machine'"'"'s' test "$(readlink "/proc/$daemon/ns/net")" != "$(readlink /proc/1/ns/net)"
same 'nothing of its user'"'"'s lies outside its directories' '' "$(find / -xdev -user appstated \
    -not -path '/run/*' -not -path '/var/lib/appstated*' -not -path '/proc/*' 2>/dev/null)"
# The one that has read what is kept ends once it has nothing to do.
for task in /proc/"$daemon"/task/*; do
    [ "${task##*/}" = "$daemon" ] || timeout "$patience" tail --pid="${task##*/}" -f /dev/null
done
same 'one thread' 1 "$(status_of "$daemon" Threads)"
check 'GLib'"'"'s memory monitor is served' busctl status org.freedesktop.LowMemoryMonitor

if [ "$where" = vm ]; then
    same 'stops are told by the tracepoint' events "$(property StopDetection)"
    same 'its memory is reserved' 16777216 "$(cat "/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$daemon/cgroup")/memory.min")"
    check 'its memory is locked' test "$(status_of "$daemon" VmLck | tr -dc 0-9)" -gt 0
    same 'nothing is missing to it' '' "$(journalctl --no-pager -o cat -u appstated "_PID=$daemon" |
        grep -E 'without|polling|cannot be distinguished|may have to|stalls alone')"
else
    skip 'stops are told by the tracepoint' 'a container has no tracepoints'
    skip 'its memory is reserved' 'the memory is the host'"'"'s'
    skip 'its memory is locked' 'a container is not given the right'
    skip 'nothing is missing to it' 'in a container there is'
fi

online=/sys/devices/system/cpu/cpu1/online
if [ "$where" = vm ] && [ -w "$online" ]; then
    systemctl restart appstated
    # So soon after its start it does not make way for another, and it may not open the CPU's events itself.
    echo 0 >"$online"
    echo 1 >"$online"
    for _ in $(seq 50); do
        [ "$(property StopDetection)" = events ] || break
        sleep 0.2
    done
    same 'the events of a CPU that was off have ended: it polls' polling "$(property StopDetection)"
    systemctl restart appstated
    same 'a new start has them handed over' events "$(property StopDetection)"
else
    skip 'the events of a CPU that was off have ended: it polls' 'no CPU can be turned off here'
    skip 'a new start has them handed over' 'no CPU can be turned off here'
fi
