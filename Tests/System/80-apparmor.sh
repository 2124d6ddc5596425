#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

profile=/etc/apparmor.d/usr.libexec.appstated

# work MODE: checks the daemon's most frequent work, and that AppArmor logged no violation meanwhile.
work() {
    local since said
    since=$(date +%s)
    systemctl restart appstated
    same "$1: the daemon is confined" "appstated ($1)" "$(tr -d '\0' <"/proc/$(main_pid)/attr/current")"
    same "$1: stops are detected by the tracepoint" events "$(property StopDetection)"
    monitor "apparmor-$1"
    start "org.example.Confined$1" 'exec sleep infinity'
    register "org.example.Confined$1" "$pid" suspension s automatic
    check "$1: an application is suspended" await "$told" "org.example.Confined$1 .*background → suspended"
    same "$1: it is frozen by its cgroup" 'frozen 1' "$(grep frozen "$cgroup/cgroup.events")"
    report SetFocus u "$pid"
    check "$1: it is resumed" await "$told" "org.example.Confined$1 .*suspended → background"
    kill -STOP "$pid"
    check "$1: a stop is noticed" await "$told" "org.example.Confined$1 .*active → inactive"
    ask "$app" Terminate b true
    check "$1: it is ended" await "$told" "org.example.Confined$1 .*ApplicationRemoved"
    systemctl reload appstated
    kill "$watcher"
    said=$(journalctl -k --no-pager -o cat --since "@$since" -g 'apparmor="(ALLOWED|DENIED)".*profile="appstated"')
    same "$1: the profile lacks nothing" '' "${said#-- No entries --}"
}

# work_on_confined: checks that signals reach an application whose own profile includes abstractions/base.
work_on_confined() {
    local program=/var/tmp/confined-sleeper own=$scratch/confined-sleeper fifo=$scratch/confined
    cp /bin/sleep "$program"
    cat >"$own" <<EOF
abi <abi/3.0>,
include <tunables/global>
profile confined-sleeper $program {
  include <abstractions/base>
  $program mr,
}
EOF
    check "an application's own profile loads" apparmor_parser --replace --skip-cache "$own"
    monitor confined
    mkfifo "$fifo"
    chmod 666 "$fifo"
    # It stays in our cgroup, which is not alice's, so the daemon does not freeze it.
    alice sh -c "echo \$\$ >$fifo; exec $program infinity" </dev/null >/dev/null 2>&1 &
    read -r pid <"$fifo"
    # shellcheck disable=SC2016 # the inner shell's parameter
    check 'the application executes its program' timeout "$patience" \
        sh -c 'until grep -q "^confined-sleeper " "/proc/$1/attr/current"; do sleep 0.1; done' sh "$pid"
    same 'the application is confined' 'confined-sleeper (enforce)' "$(tr -d '\0' <"/proc/$pid/attr/current")"
    register org.example.Confined "$pid" suspension s manual
    ask "$app" Suspend
    same 'Suspend stops it' suspended "$(state "$app")"
    same 'it is stopped by signals' '"means" s "signals"' "$(ask "$app" Explain | grep -oE '"means" s "[a-z]+"')"
    same 'the kernel has stopped it' T "$(status_of "$pid" State | cut -c 1)"
    ask "$app" Resume
    same 'Resume continues it' background "$(state "$app")"
    same 'the kernel has continued it' S "$(status_of "$pid" State | cut -c 1)"
    ask "$app" Terminate b false
    check 'Terminate ends it' await "$told" 'org.example.Confined .*ApplicationRemoved'
    kill "$watcher"
    apparmor_parser --remove "$own"
    rm "$program" "$fifo"
}

if [ "$(cat /sys/module/apparmor/parameters/enabled 2>/dev/null)" != Y ]; then
    skip 'the AppArmor profile' 'the kernel has no AppArmor'
elif [ "$where" = container ]; then
    skip 'the AppArmor profile' 'profiles belong to the host'
elif ! ls extra/apparmor_*.deb >/dev/null 2>&1; then
    skip 'the AppArmor profile' 'the package apparmor is not available'
else
    dpkg --install --force-depends extra/apparmor_*.deb >/dev/null 2>&1
    sysctl -q kernel.printk_ratelimit=0
    # libsystemd does this since version 254, and not every kernel asks AppArmor about it.
    check 'the profile lets it bind its connections to a bus' grep -qF 'unix (bind) type=stream addr="@*/bus/' "$profile"
    check 'the profile loads in complain mode' apparmor_parser --replace --Complain --skip-cache "$profile"
    work complain
    check 'the profile loads in enforce mode' apparmor_parser --replace --skip-cache "$profile"
    work enforce
    work_on_confined
    apparmor_parser --remove "$profile"
    dpkg --purge apparmor >/dev/null 2>&1
fi
