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
report SetFocus u "$pid"
same 'in front' active "$(state "$app")"
hint true
check 'locked: into the background' await "$told" 'org.example.Seen .*inactive → background'
check 'after the word about protected data' await "$told" 'org.example.Seen .*ProtectedDataWillBecomeUnavailable'
hint false
check 'unlocked: in front again' await "$told" 'org.example.Seen .*ProtectedDataDidBecomeAvailable'
same 'active' active "$(state "$app")"

if [ -c /dev/tty2 ]; then
    other=$(login bob 1002 2)
    : >"$told"
    loginctl activate "$other"
    check 'switched away: into the background' await "$told" 'org.example.Seen .*inactive → background'
    loginctl activate "$session"
    check 'switched back: in front' await "$told" 'org.example.Seen .*inactive → active'
else
    skip 'switched away: into the background' 'no virtual terminals here'
    skip 'switched back: in front' 'no virtual terminals here'
fi
kill -KILL "$pid"
kill "$watcher"
