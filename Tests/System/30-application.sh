#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

monitor application
start org.example.Walker 'exec sleep infinity'
walker=$pid
register org.example.Walker "$walker" suspension s automatic
same 'registered by its user' background "$(state "$app")"
report SetFocus u "$walker"
same 'with the focus' active "$(state "$app")"
# Of the cgroup and of each slice above it, once each.
lows() {
    local place=$cgroup
    while [ "$place" != /sys/fs/cgroup ]; do
        cat "$place/memory.low"
        place=${place%/*}
    done | sort -u
}
if [ -e "$cgroup/memory.low" ]; then
    check 'its memory is protected, and the slices above let it be' \
        test "$(lows | wc -l)" = 1 -a "$(lows | head -n 1)" -gt 16777216
    report SetFocus u 0
    same 'no longer than it has the focus' 0 "$(lows)"
else
    skip 'its memory is protected, and the slices above let it be' 'no memory controller here'
    skip 'no longer than it has the focus' 'no memory controller here'
    report SetFocus u 0
fi
same 'without' inactive "$(state "$app")"
report SetMinimized ub "$walker" true
check 'minimized, it is suspended after its grace' await "$told" 'org.example.Walker .*background → suspended'
same 'by its own cgroup' 'frozen 1' "$(grep frozen "$cgroup/cgroup.events")"
same 'first for the kernel'"'"'s killer, then' 900 "$(cat "/proc/$walker/oom_score_adj")"
if [ -e "$cgroup/cpu.weight" ]; then
    same 'and last for the processor' 20 "$(cat "$cgroup/cpu.weight")"
else
    skip 'and last for the processor' 'no cpu controller here'
fi
report SetFocus u "$walker"
check 'the focus resumes it' await "$told" 'org.example.Walker .*suspended → background'
same 'its cgroup too' 'frozen 0' "$(grep frozen "$cgroup/cgroup.events")"
same 'its weight in front' 0 "$(cat "/proc/$walker/oom_score_adj")"
kill -KILL "$walker"
check 'its end is told' await "$told" 'org.example.Walker .*ApplicationRemoved'
same 'every edge, in order' \
    'not-running background inactive active inactive background suspended background inactive active not-running' \
    "$(edges org.example.Walker)"

start org.example.Stopped 'exec sleep infinity'
register org.example.Stopped "$pid" suspension s manual
kill -STOP "$pid"
check 'a stranger'"'"'s SIGSTOP is seen' await "$told" 'org.example.Stopped .*background → suspended'
report SetFocus u "$pid"
same 'focus does not lift it' suspended "$(state "$app")"
kill -CONT "$pid"
check 'SIGCONT does' await "$told" 'org.example.Stopped .*suspended → background'
ask "$app" Suspend
same 'Suspend' suspended "$(state "$app")"
ask "$app" Resume
same 'Resume' active "$(state "$app")"
ask "$app" Terminate b false
check 'Terminate' await "$told" 'org.example.Stopped .*ApplicationRemoved'

lock=$scratch/lock
: >"$lock"
chmod 666 "$lock"
start org.example.Holder "exec perl -e 'open(F, q(>), q($lock)); flock(F, 2); sleep'"
register org.example.Holder "$pid" suspension s automatic
check 'who holds a lock is suspended' await "$told" 'org.example.Holder .*background → suspended'
alice flock --wait "$patience" "$lock" true &
waiter=$!
check 'and resumed when somebody waits for it' await "$told" 'org.example.Holder .*suspended → background'
same 'by the name of the lock' yes "$(alice appstatectl explain "$app" | grep -q 'file lock' && echo yes)"
kill -KILL "$pid"
wait "$waiter"
same 'who then gets it' 0 $?

start org.example.Busy 'while :; do :; done'
register org.example.Busy "$pid" suspension s automatic
ask "$app" Configure 'a{sv}' 1 background-cpu-quota u 20
usage() { sed -n 's/^usage_usec //p' "$cgroup/cpu.stat"; }
uptime() { tr -d . </proc/uptime | cut -d ' ' -f 1; }
if [ -e "$cgroup/cpu.max" ]; then
    same 'a rule limits it in the background' '20000 100000' "$(cat "$cgroup/cpu.max")"
    from=$(uptime) used=$(usage)
    sleep 3
    # Hundredths of a second, and microseconds. The kernel may give it a period more.
    share=$(((($(usage) - used) / 100) / ($(uptime) - from)))
    check "to a fifth of a processor (it had $share %)" [ "$share" -le 25 ]
    same 'instead of suspending it' background "$(state "$app")"
    report SetFocus u "$pid"
    same 'and no longer in front' 'max 100000' "$(cat "$cgroup/cpu.max")"
else
    skip 'a rule limits it in the background' 'no cpu controller here'
    skip 'to a fifth of a processor' 'no cpu controller here'
    skip 'instead of suspending it' 'no cpu controller here'
    skip 'and no longer in front' 'no cpu controller here'
fi
kill -KILL "$pid"
check 'and its end is told' await "$told" 'org.example.Busy .*ApplicationRemoved'

install -d -o alice "$scratch/alice"
start org.example.Server "exec perl -MIO::Socket::UNIX -e '
    \$socket = IO::Socket::UNIX->new(Local => q($scratch/alice/server), Listen => 5);
    open(F, q(>), q($scratch/alice/served)); syswrite(F, qq(listening\n));
    while (\$caller = \$socket->accept) { syswrite(\$caller, qq(answered\n)); close(\$caller) }'"
await "$scratch/alice/served" listening
register org.example.Server "$pid" suspension s automatic
check 'who listens on a socket is suspended' await "$told" 'org.example.Server .*background → suspended'
# Without an agent, when it is let run for a moment.
same 'and answers who connects' answered \
    "$(alice timeout "$patience" perl -MIO::Socket::UNIX -e 'print readline(IO::Socket::UNIX->new(Peer => shift) or die)' "$scratch/alice/server")"
kill -KILL "$pid"
check 'and its end is told' await "$told" 'org.example.Server .*ApplicationRemoved'

# It accepts when it runs: while it is suspended, for the moment that it is let run for what waits in its socket.
start org.example.Drained "exec perl -MIO::Socket::UNIX -e '
    \$socket = IO::Socket::UNIX->new(Local => q($scratch/alice/socket), Listen => 5);
    open(F, q(>), q($scratch/alice/told)); syswrite(F, qq(listening\n));
    while (\$socket->accept) { syswrite(F, qq(accepted\n)) }'"
await "$scratch/alice/told" listening
register org.example.Drained "$pid" suspension s manual
ask "$app" Suspend
alice perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Peer => shift) or die; sleep' "$scratch/alice/socket" &
caller=$!
check 'what waits in its socket has it run for a moment' await "$scratch/alice/told" accepted
same 'which is no change of state' suspended "$(state "$app")"
kill "$caller"
# Its sockets are of the machine's network namespace, and the daemon is not: it knows of them all the same. The moment that
# it was let run is over first; the time is some DrainEverySec=.
sleep 5
switches=$(status_of "$pid" voluntary_ctxt_switches)
sleep 20
same 'and where nothing waits it does not run' "$switches" "$(status_of "$pid" voluntary_ctxt_switches)"
ask "$app" Terminate b true

same 'another user sees none of it' '' "$(runuser -u bob -- appstatectl list 2>/dev/null | grep -F org.example)"
kill "$watcher"
