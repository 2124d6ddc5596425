#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

# grow MIB: what a shell runs to take so much, 8 MiB at a time, and say so.
grow() {
    echo "perl -e 'for (1 .. $1 / 8) { push @a, chr(1) x (8 << 20); select(undef, undef, undef, 0.1) }" \
        "print qq(grown), chr(10); close STDOUT; while (!@ARGV) { sleep }'"
}

# suspended ID MIB RECLAIMABLE: an application with so much memory.
suspended() {
    : >"$scratch/told-$1"
    chmod 666 "$scratch/told-$1"
    start "org.example.$1" "exec $(grow "$2") >$scratch/told-$1"
    await "$scratch/told-$1" grown
    register "org.example.$1" "$pid" suspension s automatic reclaimable b "$3"
    await "$told" "org.example.$1 .*background → suspended"
}

if [ "$where" = container ]; then
    for name in 'memory that runs short is told' 'what is suspended is pushed out, where it may not be ended' \
        'what may is ended' 'and does not run in between' 'what needed it got it' 'the kernel killed nobody'; do
        skip "$name" 'the memory is the host'"'"'s'
    done
else
    monitor pressure
    suspended Kept 96 false
    kept=$app
    swapped=$cgroup/memory.swap.current
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
    suspended Spare 200 true
    need=$(($(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo) + 160))
    sh -c "$(grow "$need") done" >>"$scratch/got" 2>&1
    check 'what may is ended' await "$told" 'ApplicationReclaimed'
    same 'and does not run in between' '' "$(grep 'org.example.Spare .*suspended → background' "$told")"
    grep -E 'MemoryPressureChanged|ApplicationReclaimed' "$told" | sed 's/^/# /'
    same 'what needed it got it' 'grown grown' "$(tr '\n' ' ' <"$scratch/got" | sed 's/ $//')"
    same 'the kernel killed nobody' '' "$(journalctl -k --no-pager -o cat -g 'Out of memory' | grep -v '^-- No entries')"
    ask "$kept" Terminate b true
    kill "$watcher"
fi
