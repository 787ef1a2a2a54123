"""CPU time and memory of a process and of its children, as /proc tells them."""

import collections
import os
import pathlib
import re

TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
MEMORY = {"resident": "Rss", "share of it": "Pss", "anonymous": "Anonymous"}


def read_children(pid):
    """Of all of its threads."""
    found = []
    for file in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += file.read_text().split()
        except OSError:  # the thread has ended
            pass
    return found


def read_threads(pid):
    """Seconds of CPU by name of the thread, in nanoseconds exact; the main one has the program's name."""
    seconds = collections.Counter()
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            seconds[(task / "comm").read_text().strip()] += int((task / "schedstat").read_text().split()[0]) / 1e9
        except OSError:
            pass
    return seconds


class Usage:
    """What was used until now; the difference of two is what was used in between."""

    def __init__(self, pid):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # In ticks of 10 ms: threads and children that have ended are in it, too.
        self.own_seconds = (int(fields[11]) + int(fields[12])) * TICK_SECONDS
        self.children_seconds = (int(fields[13]) + int(fields[14])) * TICK_SECONDS
        self.children_seconds += sum(sum(read_threads(child).values()) for child in read_children(pid))
        self.threads = read_threads(pid)

    def since(self, before):
        """Seconds: (own, those of children, {thread: own} with the most first)."""
        threads = {name: seconds - before.threads[name] for name, seconds in self.threads.items()}
        return (self.own_seconds - before.own_seconds, max(self.children_seconds - before.children_seconds, 0),
                dict(sorted(threads.items(), key=lambda entry: -entry[1])))


def read_memory(pid):
    """MiB by kind, with the highest resident memory so far as "peak"."""
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    memory = {kind: int(re.search(rf"^{key}:\s+(\d+) kB", rollup, re.M).group(1)) / 1024 for kind, key in MEMORY.items()}
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    memory["peak"] = int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) / 1024
    return memory


def describe(values, unit, scale=1.0, least=0.01):
    """"drain 0.31, loop 0.2 % of a core"; what is less than `least` is left out."""
    parts = [f"{name} {value * scale:.2f}" for name, value in values.items() if value * scale >= least]
    return f"{', '.join(parts)} {unit}"
