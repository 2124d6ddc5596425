#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

monitor application
start org.example.Walker 'exec sleep infinity'
walker=$pid
register org.example.Walker "$walker" suspension s automatic
same 'its user registers an application' background "$(state "$app")"
report SetFocus u "$walker"
same 'with the focus it is active' active "$(state "$app")"
check 'another user may list applications' runuser -u bob -- appstatectl list
same 'another user does not see it' '' "$(runuser -u bob -- appstatectl list 2>/dev/null | grep -F org.example)"
same 'its own user does' 1 "$(alice appstatectl list | grep -cF org.example.Walker)"
# lows: prints the distinct values of memory.low in the cgroup and the slices above it.
lows() {
    local place=$cgroup
    while [ "$place" != /sys/fs/cgroup ]; do
        cat "$place/memory.low"
        place=${place%/*}
    done | sort -u
}
if [ -e "$cgroup/memory.low" ]; then
    check 'its memory is protected, also by the slices above' \
        test "$(lows | wc -l)" = 1 -a "$(lows | head -n 1)" -gt 16777216
    report SetFocus u 0
    same 'the protection ends with the focus' 0 "$(lows)"
else
    skip 'its memory is protected, also by the slices above' 'no memory controller here'
    skip 'the protection ends with the focus' 'no memory controller here'
    report SetFocus u 0
fi
same 'without the focus it is inactive' inactive "$(state "$app")"
report SetMinimized ub "$walker" true
check 'minimized, it is suspended after its grace period' await "$told" 'org.example.Walker .*background → suspended'
same 'it is frozen by its own cgroup' 'frozen 1' "$(grep frozen "$cgroup/cgroup.events")"
# The daemon answers once it has done all that follows from the signal.
list >/dev/null
same 'the OOM killer takes it first' 900 "$(cat "/proc/$walker/oom_score_adj")"
if [ -e "$cgroup/cpu.weight" ]; then
    same 'it comes last for the processor' 20 "$(cat "$cgroup/cpu.weight")"
else
    skip 'it comes last for the processor' 'no cpu controller here'
fi
report SetFocus u "$walker"
check 'the focus resumes it' await "$told" 'org.example.Walker .*suspended → background'
same 'its cgroup is thawed' 'frozen 0' "$(grep frozen "$cgroup/cgroup.events")"
same 'its OOM score is that of the foreground' 0 "$(cat "/proc/$walker/oom_score_adj")"
if [ -e "$cgroup/cpu.weight" ]; then
    same 'it comes first for the processor' 200 "$(cat "$cgroup/cpu.weight")"
else
    skip 'it comes first for the processor' 'no cpu controller here'
fi
check 'it is marked for systemd-oomd' grep -q 'user.oomd_avoid=1' <<<"$(alice appstatectl explain "$app")"
kill -KILL "$walker"
check 'its end is announced' await "$told" 'org.example.Walker .*ApplicationRemoved'
same 'every edge is announced, in order' \
    'not-running background inactive active inactive background suspended background inactive active not-running' \
    "$(edges org.example.Walker)"

start org.example.Stopped 'exec sleep infinity'
register org.example.Stopped "$pid" suspension s manual
kill -STOP "$pid"
check 'a SIGSTOP from another process is noticed' await "$told" 'org.example.Stopped .*background → suspended'
report SetFocus u "$pid"
same 'the focus does not end the stop' suspended "$(state "$app")"
kill -CONT "$pid"
check 'SIGCONT ends the stop' await "$told" 'org.example.Stopped .*suspended → background'
ask "$app" Suspend
same 'Suspend suspends it' suspended "$(state "$app")"
ask "$app" Resume
same 'Resume resumes it' active "$(state "$app")"
ask "$app" Terminate b false
check 'Terminate ends it' await "$told" 'org.example.Stopped .*ApplicationRemoved'

lock=$scratch/lock
: >"$lock"
chmod 666 "$lock"
held=$scratch/held
: >"$held"
chmod 666 "$held"
start org.example.Holder "exec perl -e 'open(F, q(>), q($lock)); flock(F, 2);
    open(G, q(>), q($held)); syswrite(G, qq(held\n)); sleep'"
await "$held" held
register org.example.Holder "$pid" suspension s automatic
check 'an application that holds a lock is suspended' await "$told" 'org.example.Holder .*background → suspended'
alice flock --wait "$patience" "$lock" true &
waiter=$!
check 'it is resumed when another process waits for the lock' await "$told" 'org.example.Holder .*suspended → background'
same 'the reason names the lock' yes "$(alice appstatectl explain "$app" | grep -q 'file lock' && echo yes)"
kill -KILL "$pid"
wait "$waiter"
same 'the waiting process then gets the lock' 0 $?

start org.example.Busy 'while :; do :; done'
register org.example.Busy "$pid" suspension s automatic
ask "$app" Configure 'a{sv}' 1 background-cpu-quota u 20
usage() { sed -n 's/^usage_usec //p' "$cgroup/cpu.stat"; }
uptime() { tr -d . </proc/uptime | cut -d ' ' -f 1; }
if [ -e "$cgroup/cpu.max" ]; then
    same 'a rule limits its processor time in the background' '20000 100000' "$(cat "$cgroup/cpu.max")"
    from=$(uptime) used=$(usage)
    sleep 3
    # Uptime is in hundredths of a second, usage in microseconds. The kernel may grant one period more.
    share=$(((($(usage) - used) / 100) / ($(uptime) - from)))
    check "the limit is a fifth of a processor (it used $share %)" [ "$share" -le 25 ]
    same 'it is not suspended' background "$(state "$app")"
    report SetFocus u "$pid"
    same 'the limit is lifted in front' 'max 100000' "$(cat "$cgroup/cpu.max")"
else
    skip 'a rule limits its processor time in the background' 'no cpu controller here'
    skip 'the limit is a fifth of a processor' 'no cpu controller here'
    skip 'it is not suspended' 'no cpu controller here'
    skip 'the limit is lifted in front' 'no cpu controller here'
fi
kill -KILL "$pid"
check 'its end is announced' await "$told" 'org.example.Busy .*ApplicationRemoved'

install -d -o alice "$scratch/alice"
start org.example.Server "exec perl -MIO::Socket::UNIX -e '
    \$socket = IO::Socket::UNIX->new(Local => q($scratch/alice/server), Listen => 5);
    open(F, q(>), q($scratch/alice/served)); syswrite(F, qq(listening\n));
    while (\$caller = \$socket->accept) { syswrite(\$caller, qq(answered\n)); close(\$caller) }'"
await "$scratch/alice/served" listening
register org.example.Server "$pid" suspension s automatic
check 'an application that listens on a socket is suspended' await "$told" 'org.example.Server .*background → suspended'
# There is no session agent, so it answers while the daemon lets it run for a moment.
same 'it answers a client that connects' answered \
    "$(alice timeout "$patience" perl -MIO::Socket::UNIX -e 'print readline(IO::Socket::UNIX->new(Peer => shift) or die)' "$scratch/alice/server")"
kill -KILL "$pid"
check 'its end is announced' await "$told" 'org.example.Server .*ApplicationRemoved'

# While it is suspended, the daemon lets it run for a moment if a connection waits in its socket.
start org.example.Drained "exec perl -MIO::Socket::UNIX -e '
    \$socket = IO::Socket::UNIX->new(Local => q($scratch/alice/socket), Listen => 5);
    open(F, q(>), q($scratch/alice/told)); syswrite(F, qq(listening\n));
    while (\$socket->accept) { syswrite(F, qq(accepted\n)) }'"
await "$scratch/alice/told" listening
register org.example.Drained "$pid" suspension s manual
ask "$app" Suspend
alice perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Peer => shift) or die; sleep' "$scratch/alice/socket" &
caller=$!
check 'a connection in its socket lets it run for a moment' await "$scratch/alice/told" accepted
same 'its state does not change' suspended "$(state "$app")"
kill "$caller"
# The daemon sees its sockets although it is in another network namespace. The moment for which it runs must end first.
# The second pause is several times DrainEverySec=.
sleep 5
switches=$(status_of "$pid" voluntary_ctxt_switches)
sleep 8
check 'it has not ended' test -n "$switches"
same 'it does not run while nothing waits' "$switches" "$(status_of "$pid" voluntary_ctxt_switches)"
ask "$app" Terminate b true

kill "$watcher"
