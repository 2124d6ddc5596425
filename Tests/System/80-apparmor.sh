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
    apparmor_parser --remove "$profile"
    dpkg --purge apparmor >/dev/null 2>&1
fi
