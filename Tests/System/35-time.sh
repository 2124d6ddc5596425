#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

# clock ID: an application with a delegate, which is told of the time.
clock() {
    : >"$scratch/clock-$1"
    chmod 666 "$scratch/clock-$1"
    start "org.example.$1" "exec $delegate org.example.$1 >>$scratch/clock-$1 2>&1"
    await "$scratch/clock-$1" DidEnterBackground
    app=$(sed -n 's/^is //p' "$scratch/clock-$1")
}

# causes ID: what its delegate was told, in order.
causes() { sed -n 's/^SignificantTimeChange //p' "$scratch/clock-$1" | tr '\n' ' ' | sed 's/ $//'; }

# told_causes ID: what a subscriber was told of it.
told_causes() { sed -nE "s/.*org\.example\.$1 .*SignificantTimeChange.*cause=\"?([a-z-]+).*/\1/p" "$told" | tr '\n' ' ' | sed 's/ $//'; }

# changes NAME CAUSE COMMAND...: the delegate that runs is told once, and of nothing else.
changes() {
    local name=$1 cause=$2
    shift 2
    : >"$scratch/clock-Awake"
    "$@" >/dev/null || not_ok "$name" "$* failed"
    await "$scratch/clock-Awake" "^SignificantTimeChange ${cause##* }\$"
    same "$name" "$cause" "$(causes Awake)"
    expected="$expected $cause"
}

# When this machine was started, by the clock as it is now.
read -r up _ </proc/uptime
started=$(($(date +%s) - ${up%.*}))
zone=$(readlink /etc/localtime || echo ../usr/share/zoneinfo/Etc/UTC)

if [ ! -x "$delegate" ]; then
    for name in 'another time zone: told once' 'the clock is set: told once' 'midnight: told once' \
        'summer time begins: told once' 'summer time ends: told once' 'a subscriber is told the same' \
        'and of the one that is suspended, too' 'which is told nothing itself' \
        'and once when it runs again: the latest'; do
        skip "$name" 'the delegate could not be built: no C compiler or no libsystemd-dev'
    done
else
    monitor time
    clock Awake
    awake=$pid
    clock Asleep
    asleep=$pid
    ask "$app" Suspend
    same 'one is suspended' suspended "$(state "$app")"
    expected=''
    # At noon no event of a day or a season comes in between.
    [ "$where" = container ] || changes 'the clock is set: told once' clock-set date -s '2027-03-24 12:00:00 UTC'
    changes 'another time zone: told once' time-zone timedatectl set-timezone Europe/Berlin
    if [ "$where" = container ]; then
        for name in 'the clock is set: told once' 'and set back: told once' 'midnight: told once' 'summer time begins: told once' \
            'summer time ends: told once'; do
            skip "$name" 'the clock is the host'"'"'s'
        done
    else
        changes 'and set back: told once' clock-set date -s '2027-03-24 11:00:00 UTC'
        # Time enough that the first is told before the second comes.
        changes 'midnight: told once' 'clock-set midnight' date -s '2027-03-26 23:59:55 +0100'
        same 'it is Saturday' 6 "$(TZ=Europe/Berlin date +%u)"
        changes 'summer time begins: told once' 'clock-set daylight-saving' date -s '2027-03-28 01:59:55 +0100'
        same 'it is past three' 03 "$(TZ=Europe/Berlin date +%H)"
        changes 'summer time ends: told once' 'clock-set daylight-saving' date -s '2027-10-31 02:59:55 +0200'
        same 'it is past two' 02 "$(TZ=Europe/Berlin date +%H)"
    fi
    last=${expected##* }
    same 'a subscriber is told the same' "${expected# }" "$(told_causes Awake)"
    same 'and of the one that is suspended, too' "${expected# }" "$(told_causes Asleep)"
    same 'which is told nothing itself' '' "$(causes Asleep)"
    ask "$app" Resume
    await "$scratch/clock-Asleep" SignificantTimeChange
    # What else it might be told comes before the answer to this.
    ask "$app" Suspend
    same 'and once when it runs again: the latest' "$last" "$(causes Asleep)"
    kill -KILL "$awake" "$asleep"
    kill "$watcher"

    # Back to the time and the zone that there were.
    if [ "$where" = vm ]; then
        read -r up _ </proc/uptime
        date -s "@$((started + ${up%.*}))" >/dev/null
    fi
    timedatectl set-timezone "${zone##*/zoneinfo/}"
fi
