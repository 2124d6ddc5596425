#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

hint() {
    busctl call org.freedesktop.login1 "$(loginctl show-session "$session" --property=Id --value |
        xargs -I{} busctl call org.freedesktop.login1 /org/freedesktop/login1 \
            org.freedesktop.login1.Manager GetSession s {} | cut -d '"' -f 2)" \
        org.freedesktop.login1.Session SetLockedHint b "$1"
}

monitor session
start org.example.Seen 'exec sleep infinity'
register org.example.Seen "$pid" suspension s manual
front=$pid
report SetFocus u "$pid"
same 'the application in front is active' active "$(state "$app")"
hint true
check 'locking moves it to the background' await "$told" 'org.example.Seen .*inactive → background'
check 'the loss of protected data is announced' await "$told" 'org.example.Seen .*ProtectedDataWillBecomeUnavailable'
hint false
check 'unlocking announces protected data' await "$told" 'org.example.Seen .*ProtectedDataDidBecomeAvailable'
same 'it is active again' active "$(state "$app")"

# Does what a desktop's screen locker does at logind's signals Lock and Unlock.
dbus-monitor --system "type='signal',interface='org.freedesktop.login1.Session'" >"$scratch/locker" 2>&1 &
listener=$!
await "$scratch/locker" 'member=NameLost'
tail -n +1 -f "$scratch/locker" | while read -r line; do
    case $line in
    *member=Lock) hint true ;;
    *member=Unlock) hint false ;;
    esac
done &
locker=$!
seen=$app
if [ -x "$delegate" ]; then
    : >"$scratch/delegate"
    chmod 666 "$scratch/delegate"
    start org.example.Told "exec $delegate org.example.Told >>$scratch/delegate 2>&1"
    await "$scratch/delegate" DidEnterBackground
fi
: >"$told"
loginctl lock-session "$session"
check 'loginctl lock-session moves it to the background' await "$told" 'org.example.Seen .*inactive → background'
loginctl unlock-session "$session"
check 'loginctl unlock-session brings it to the front' await "$told" 'org.example.Seen .*inactive → active'
same 'it is active after that' active "$(state "$seen")"
if ! no_delegate 'a delegate is notified of both, once'; then
    await "$scratch/delegate" DidBecomeAvailable
    same 'a delegate is notified of both, once' 'ProtectedDataWillBecomeUnavailable ProtectedDataDidBecomeAvailable' \
        "$(grep ProtectedData "$scratch/delegate" | tr '\n' ' ' | sed 's/ $//')"
    kill -KILL "$pid"
fi
kill "$listener" "$locker"

if [ -c /dev/tty2 ]; then
    other=$(login bob 1002 2)
    : >"$told"
    loginctl activate "$other"
    check 'switching to another session moves it to the background' await "$told" 'org.example.Seen .*inactive → background'
    loginctl activate "$session"
    check 'switching back brings it to the front' await "$told" 'org.example.Seen .*inactive → active'
else
    skip 'switching to another session moves it to the background' 'no virtual terminals here'
    skip 'switching back brings it to the front' 'no virtual terminals here'
fi
kill -KILL "$front"
kill "$watcher"
