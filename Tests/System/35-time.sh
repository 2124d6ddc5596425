#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

# clock ID: starts an application with a delegate, which is notified of changes of the time.
clock() {
    : >"$scratch/clock-$1"
    chmod 666 "$scratch/clock-$1"
    start "org.example.$1" "exec $delegate org.example.$1 >>$scratch/clock-$1 2>&1"
    await "$scratch/clock-$1" DidEnterBackground
    app=$(sed -n 's/^is //p' "$scratch/clock-$1")
}

# causes ID: prints the changes that its delegate was notified of, in order.
causes() { sed -n 's/^SignificantTimeChange //p' "$scratch/clock-$1" | tr '\n' ' ' | sed 's/ $//'; }

# told_causes ID: prints the changes of this application that a subscriber was notified of.
told_causes() { sed -nE "s/.*org\.example\.$1 .*SignificantTimeChange.*cause=\"?([a-z-]+).*/\1/p" "$told" | tr '\n' ' ' | sed 's/ $//'; }

# changes NAME CAUSE COMMAND...: checks that the command notifies the running delegate once, and of nothing else.
changes() {
    local name=$1 cause=$2
    shift 2
    : >"$scratch/clock-Awake"
    "$@" >/dev/null || not_ok "$name" "$* failed"
    await "$scratch/clock-Awake" "^SignificantTimeChange ${cause##* }\$"
    same "$name" "$cause" "$(causes Awake)"
    expected="$expected $cause"
}

# When this machine was started, according to the current clock.
read -r up _ </proc/uptime
started=$(($(date +%s) - ${up%.*}))
zone=$(readlink /etc/localtime || echo ../usr/share/zoneinfo/Etc/UTC)

if ! no_delegate 'a change of the time zone is announced once' 'a set clock is announced once' \
    'midnight is announced once' 'the beginning of summer time is announced once' \
    'the end of summer time is announced once' 'a subscriber receives the same changes' \
    'a subscriber also receives the changes for a suspended application' \
    'the suspended application receives no changes' 'a resumed application receives the latest change once'; then
    monitor time
    clock Awake
    awake=$pid
    clock Asleep
    asleep=$pid
    ask "$app" Suspend
    same 'the second application is suspended' suspended "$(state "$app")"
    expected=''
    # Noon is far from midnight and from a change of summer time.
    [ "$where" = container ] || changes 'a set clock is announced once' clock-set date -s '2027-03-24 12:00:00 UTC'
    changes 'a change of the time zone is announced once' time-zone timedatectl set-timezone Europe/Berlin
    if [ "$where" = container ]; then
        for name in 'a set clock is announced once' 'a clock that is set back is announced once' \
            'midnight is announced once' 'the beginning of summer time is announced once' \
            'the end of summer time is announced once'; do
            skip "$name" 'the clock belongs to the host'
        done
    else
        changes 'a clock that is set back is announced once' clock-set date -s '2027-03-24 11:00:00 UTC'
        # Long enough that the first change is announced before the second comes.
        changes 'midnight is announced once' 'clock-set midnight' date -s '2027-03-26 23:59:55 +0100'
        same 'it is Saturday' 6 "$(TZ=Europe/Berlin date +%u)"
        changes 'the beginning of summer time is announced once' 'clock-set daylight-saving' date -s '2027-03-28 01:59:55 +0100'
        same 'it is past three' 03 "$(TZ=Europe/Berlin date +%H)"
        changes 'the end of summer time is announced once' 'clock-set daylight-saving' date -s '2027-10-31 02:59:55 +0200'
        same 'it is past two' 02 "$(TZ=Europe/Berlin date +%H)"
    fi
    last=${expected##* }
    # The subscriber is another process than the delegate.
    for name in Awake Asleep; do
        for ((wait = 0; wait < patience * 10; wait++)); do
            [ "$(told_causes "$name")" != "${expected# }" ] || break
            sleep 0.1
        done
    done
    same 'a subscriber receives the same changes' "${expected# }" "$(told_causes Awake)"
    same 'a subscriber also receives the changes for a suspended application' "${expected# }" "$(told_causes Asleep)"
    same 'the suspended application receives no changes' '' "$(causes Asleep)"
    ask "$app" Resume
    await "$scratch/clock-Asleep" SignificantTimeChange
    # Any other notification would arrive before the reply to this call.
    ask "$app" Suspend
    same 'a resumed application receives the latest change once' "$last" "$(causes Asleep)"
    kill -KILL "$awake" "$asleep"
    kill "$watcher"

    # Restore the former time and zone.
    if [ "$where" = vm ]; then
        read -r up _ </proc/uptime
        date -s "@$((started + ${up%.*}))" >/dev/null
    fi
    timedatectl set-timezone "${zone##*/zoneinfo/}"
fi
