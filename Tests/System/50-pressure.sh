#!/bin/bash
# shellcheck disable=SC2154 # shared between the files

# grow MIB: prints a shell command that allocates this much, 8 MiB at a time, and then prints a line.
grow() {
    echo "perl -e 'for (1 .. $1 / 8) { push @a, chr(1) x (8 << 20); select(undef, undef, undef, 0.1) }" \
        "print qq(grown), chr(10); close STDOUT; while (!@ARGV) { sleep }'"
}

# suspended ID MIB RECLAIMABLE: starts an application with this much memory, and waits until it is suspended.
suspended() {
    : >"$scratch/told-$1"
    chmod 666 "$scratch/told-$1"
    start "org.example.$1" "exec $(grow "$2") >$scratch/told-$1"
    await "$scratch/told-$1" grown
    register "org.example.$1" "$pid" suspension s automatic reclaimable b "$3"
    await "$told" "org.example.$1 .*background → suspended"
}

if [ "$where" = container ]; then
    for name in 'memory pressure is announced' 'a suspended application that may not be ended is paged out' \
        'a suspended application that may be ended is reclaimed' 'it does not run before its end' \
        'the programs that needed memory got it' 'the kernel killed no process'; do
        skip "$name" 'the memory belongs to the host'
    done
else
    monitor pressure
    suspended Kept 96 false
    kept=$app
    swapped=$cgroup/memory.swap.current
    # More than is available without swap.
    need=$(($(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo) + 64))
    sh -c "$(grow "$need") done" >"$scratch/got" 2>&1
    check 'memory pressure is announced' await "$told" 'MemoryPressureChanged level="?(warning|critical)'
    if [ "$(cat "$swapped")" -gt 0 ]; then
        ok 'a suspended application that may not be ended is paged out'
    else
        not_ok 'a suspended application that may not be ended is paged out' "$swapped: 0"
    fi

    # The same without swap. MemAvailable does not include the pages on the CPUs' own lists, and reading the swap back
    # leaves many pages there.
    swapoff -a
    suspended Spare 200 true
    need=$(($(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo) + 160))
    sh -c "$(grow "$need") done" >>"$scratch/got" 2>&1
    check 'a suspended application that may be ended is reclaimed' await "$told" 'ApplicationReclaimed'
    same 'it does not run before its end' '' "$(grep 'org.example.Spare .*suspended → background' "$told")"
    grep -E 'MemoryPressureChanged|ApplicationReclaimed' "$told" | sed 's/^/# /'
    same 'the programs that needed memory got it' 'grown grown' "$(tr '\n' ' ' <"$scratch/got" | sed 's/ $//')"
    same 'the kernel killed no process' '' "$(journalctl -k --no-pager -o cat -g 'Out of memory' | grep -v '^-- No entries')"
    ask "$kept" Terminate b true
    kill "$watcher"
fi
