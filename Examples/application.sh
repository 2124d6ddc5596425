#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A shell script with a life cycle. It counts, saves the count, and stops counting while it is out of sight.
# Needs busctl and appstatectl. Uses the system bus, or the one that DBUS_SYSTEM_BUS_ADDRESS names.
#
# A shell has no connection of its own that could be a delegate: each busctl has one that ends with it.
# The script registers its process, gets its edges from appstatectl, and receives SIGTERM where a delegate
# receives WillTerminate.
set -eu

id=${1:-org.example.Script}
count=0

tell() { # MEMBER [SIGNATURE ARGUMENT...]
    busctl --system call org.appstate1 "$app" org.appstate1.Application "$@"
}

# Saved state consists of bytes; here it is a single byte, the count.
save() {
    tell SaveState ay 1 "$count" >/dev/null
    echo "saved $count"
}

load() {
    saved=$(tell LoadState) # ay COUNT BYTE...
    # shellcheck disable=SC2086 # words
    set -- $saved
    [ "$2" = 0 ] || count=$3
    echo "restored $count"
}

quit() {
    save
    exit 0
}

# However the script ends, nothing is left of it.
clean() {
    [ -z "$monitor" ] || kill "$monitor" 2>/dev/null || true
    rm -rf "$directory"
}

monitor=
directory=$(mktemp -d)
trap clean EXIT
trap 'exit 1' TERM INT HUP
mkfifo "$directory/edges" "$directory/said"

# Listen before registering, so that no edge is missed. appstatectl passes on the daemon's signals alone: any process
# can send a signal that looks like one of them.
appstatectl monitor --json >"$directory/edges" 2>"$directory/said" &
monitor=$!
exec 3<"$directory/edges" 4<"$directory/said"
read -r _ <&4 # listening

# Not a pipe: its status would be that of its last command.
answer=$(busctl --system call org.appstate1 /org/appstate1 org.appstate1.Manager Register 'sua{sv}' \
    "$id" $$ 2 launch-mode s foreground suspension s automatic)
app=${answer#*\"} # o "PATH"
app=${app%\"*}
trap quit TERM INT HUP
load
echo "launched $app"

while read -r line <&3; do
    case $line in
    *"\"path\":\"$app\""*'"to":"'*) ;;
    *) continue ;;
    esac
    state=${line##*\"to\":\"}
    state=${state%%\"*}
    echo "$state"
    case $state in
    active) count=$(((count + 1) % 256)) ;; # a byte
    background) save ;;
    esac
done
