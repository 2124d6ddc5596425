#!/usr/bin/env python3
"""Runs a command with the standard streams of this process as a link that is cut.

Usage: cut.py TOTALS UP DOWN COMMAND...
The link is cut after UP bytes to the command, or after DOWN bytes from it; -1: never. The command is killed then.
The file TOTALS has the bytes of both directions so far.
"""
import os, select, subprocess, sys

totals, limits, command = sys.argv[1], [int(word) for word in sys.argv[2:4]], sys.argv[4:]
child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
output = child.stdout.fileno()
ways = {0: (child.stdin.fileno(), 0), output: (1, 1)}
counts, is_cut = [0, 0], False
file = open(totals, "w")
while output in ways and not is_cut:
    for source in select.select(list(ways), [], [])[0]:
        target, way = ways[source]
        data = os.read(source, 65536)
        if not data:
            del ways[source]
            if source == 0:
                child.stdin.close()
            continue
        if 0 <= limits[way] <= counts[way] + len(data):
            data, is_cut = data[:limits[way] - counts[way]], True
        counts[way] += len(data)
        file.seek(0)
        print(*counts, file=file, flush=True)
        try:
            while data:
                data = data[os.write(target, data):]
        except OSError:
            is_cut = True
        if is_cut:
            break
if is_cut:
    child.kill()
child.wait()
