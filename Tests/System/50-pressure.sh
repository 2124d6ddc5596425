#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

# hoard MIB: what a shell runs to take and keep so much.
hoard() { echo "(head -c ${1}M /dev/zero; exec sleep infinity) | tail -c ${1}M"; }

if [ "$where" = container ]; then
    for name in 'memory that runs short is told' 'what is suspended is pushed out first' \
        'then it is ended' 'what needed it got it' 'the kernel killed nobody'; do
        skip "$name" 'the memory is the host'"'"'s'
    done
else
    monitor pressure
    start org.example.Kept "$(hoard 40)"
    register org.example.Kept "$pid" suspension s automatic reclaimable b false
    await "$told" 'org.example.Kept .*background → suspended'
    swapped=$cgroup/memory.swap.current
    start org.example.Spare "$(hoard 200)"
    # Until it has taken all.
    while [ "$(cat "$cgroup/memory.current")" -lt $((200 << 20)) ]; do sleep 1; done
    register org.example.Spare "$pid" suspension s automatic
    await "$told" 'org.example.Spare .*background → suspended'
    # More than there is: what was left, and half of what is suspended.
    need=$(($(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo) + 100))
    head -c "${need}M" /dev/zero | tail -c "${need}M" | wc -c >"$scratch/got" &
    hungry=$!
    check 'memory that runs short is told' await "$told" 'MemoryPressureChanged|pressure'
    check 'then it is ended' await "$told" 'org.example.Spare .*ApplicationReclaimed'
    wait "$hungry"
    same 'what needed it got it' $((need << 20)) "$(cat "$scratch/got")"
    if [ "$(cat "$swapped")" -gt 0 ]; then
        ok 'what is suspended is pushed out first'
    else
        not_ok 'what is suspended is pushed out first' "$swapped: 0"
    fi
    same 'the kernel killed nobody' '' "$(journalctl -k --no-pager -o cat -g 'Out of memory')"
    kill "$watcher"
fi
