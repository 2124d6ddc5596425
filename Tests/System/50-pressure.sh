#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

# grow MIB: what a shell runs to take so much, 8 MiB at a time, and say so.
grow() {
    echo "perl -e 'for (1 .. $1 / 8) { push @a, chr(1) x (8 << 20); select(undef, undef, undef, 0.1) }" \
        "print qq(grown), chr(10); close STDOUT; while (!@ARGV) { sleep }'"
}

if [ "$where" = container ]; then
    for name in 'memory that runs short is told' 'what is suspended is pushed out, where it may not be ended' \
        'what may is ended' 'what needed it got it' 'the kernel killed nobody'; do
        skip "$name" 'the memory is the host'"'"'s'
    done
else
    monitor pressure
    # Suspended in this order: of the two the first may not be ended.
    for one in 'Kept 48 false' 'Spare 200 true'; do
        read -r name size reclaimable <<<"$one"
        : >"$scratch/told-$name"
        chmod 666 "$scratch/told-$name"
        start "org.example.$name" "exec $(grow "$size") >$scratch/told-$name"
        await "$scratch/told-$name" grown
        register "org.example.$name" "$pid" suspension s automatic reclaimable b "$reclaimable"
        await "$told" "org.example.$name .*background → suspended"
        if [ "$name" = Kept ]; then
            kept=$app
            swapped=$cgroup/memory.swap.current
        fi
    done
    # More than there is without the swap.
    need=$(($(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo) + 64))
    sh -c "$(grow "$need") done" >"$scratch/got" 2>&1
    check 'memory that runs short is told' await "$told" 'MemoryPressureChanged level="?(warning|critical)'
    if [ "$(cat "$swapped")" -gt 0 ]; then
        ok 'what is suspended is pushed out, where it may not be ended'
    else
        not_ok 'what is suspended is pushed out, where it may not be ended' "$swapped: 0"
    fi

    # And once more, where nothing can be pushed out. MemAvailable leaves out what CPUs keep for themselves, much of it after
    # the swap was read back.
    swapoff -a
    need=$(($(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo) + 160))
    sh -c "$(grow "$need") done" >>"$scratch/got" 2>&1
    check 'what may is ended' await "$told" 'ApplicationReclaimed'
    grep -E 'MemoryPressureChanged|ApplicationReclaimed' "$told" | sed 's/^/# /'
    same 'what needed it got it' 'grown grown' "$(tr '\n' ' ' <"$scratch/got" | sed 's/ $//')"
    same 'the kernel killed nobody' '' "$(journalctl -k --no-pager -o cat -g 'Out of memory' | grep -v '^-- No entries')"
    ask "$kept" Terminate b true
    kill "$watcher"
fi
