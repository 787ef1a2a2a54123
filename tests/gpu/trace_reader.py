"""Captures as gpuperfctl gives them, as plain rows: Chrome trace JSON, folded text, extended folded text (as they
lie on disk: trace_raw.py); and the files that launch_truth.cpp writes. What these forms call their fields is written down here alone."""

import bisect
import collections
import dataclasses
import json
import re
import struct

LAUNCH_CATEGORY = "launch"
# Category of a piece of GPU work -> what it is.
WORK_CATEGORIES = {"kernel": "kernel", "copy": "copy", "gpu_memcpy": "copy", "set": "set",
                   "gpu_memset": "set", "graph": "graph"}
GAP_CATEGORY = "missing"
CORRELATION, MATCH, STACK = "correlation", "match", "stack"
EXACT, AMBIGUOUS = "exact", "ambiguous"  # a launch that is exact says nothing
GPU_FRAME = re.compile(r"\[GPU(\d*)_(\w+)\](.*)")  # "[GPU0_Kernel]name"
TRUTH_MAGIC = b"GPTRUTH1"
TRUTH_CALL = struct.Struct("<QQIIIiIiBB6x")  # struct LaunchTruth of launch_truth.h


@dataclasses.dataclass(slots=True)
class Launch:
    pid: int
    tid: int
    start_ns: int
    duration_ns: int
    name: str
    correlation_id: int
    match: str
    stack: tuple | None  # outermost first


@dataclasses.dataclass(slots=True)
class Work:
    kind: str  # kernel, copy, set, graph
    name: str  # of a kernel: the full one
    track: tuple  # where the trace draws it
    start_ns: int
    duration_ns: int
    launch: Launch | None = None  # where the trace's arrow to it begins
    arrows: int = 0
    # In captures as they lie on disk alone:
    size_bytes: int = 0
    graph_id: int = 0  # 0 = neither a graph nor in one
    node_id: int = 0
    capture_site: Launch | None = None  # the launch that was captured into the graph


@dataclasses.dataclass(slots=True)
class Trace:
    launches: list
    work: list
    gaps: list  # arguments of what says that records are missing
    start_mono_ns: int  # the trace's time 0; add it to the times of the rows


def to_ns(microseconds):
    """Of an event: below 10^15 ns, which a float of microseconds holds to the nanosecond."""
    return round(microseconds * 1000)


def split_stack(stack):
    """A list of frames, outermost first; also from one text of them."""
    if stack is None:
        return None
    return tuple(stack.split(";") if isinstance(stack, str) else map(str, stack))


class Tracks:
    """Slices by where they are drawn, to be found by a point in time."""

    def __init__(self, rows, get_track):
        self.rows = collections.defaultdict(list)
        for row in rows:
            self.rows[get_track(row)].append(row)
        for track in self.rows.values():
            track.sort(key=lambda row: row.start_ns)
        self.starts = {key: [row.start_ns for row in track] for key, track in self.rows.items()}

    def find(self, track, at_ns):
        """The slice of that track that began last at or before `at_ns`, if it lasts until then."""
        place = bisect.bisect_right(self.starts.get(track, []), at_ns) - 1
        if place < 0:
            return None
        row = self.rows[track][place]
        return row if at_ns <= row.start_ns + row.duration_ns else None


class Stacks:
    """The stacks of events: in their arguments, or by a number in the document's table of frames."""

    def __init__(self, table):
        self.table, self.known = table, {}

    def find(self, event):
        stack = event.get("args", {}).get(STACK)
        if stack is not None or "sf" not in event:
            return split_stack(stack)
        return self.follow(str(event["sf"]))

    def follow(self, number):
        """From the innermost frame to the outermost; most of them many events have in common."""
        path = []
        while number in self.table and number not in self.known and len(path) < 10_000:
            path.append(number)
            number = str(self.table[number].get("parent"))
        stack = self.known.get(number, ())
        for number in reversed(path):
            stack = self.known[number] = (*stack, self.table[number].get("name", ""))
        return stack


def read_kernel(event, names):
    """The full name of a piece of work: its own, or a row of the table where those are long."""
    kernel = event.get("args", {}).get("kernel")
    if isinstance(kernel, int) and kernel < len(names):
        return names[kernel]
    return kernel if isinstance(kernel, str) else event["name"]


def read_chrome(document):
    """Rows of Chrome trace JSON: launches, and GPU work with the launch that its arrow comes from."""
    stacks, other = Stacks(document.get("stackFrames", {})), document.get("otherData", {})
    launches, work, gaps, begins, ends = [], [], [], {}, []
    for event in document["traceEvents"]:
        phase, category, more = event.get("ph"), event.get("cat"), event.get("args", {})
        if phase == "X" and category == LAUNCH_CATEGORY:
            launches.append(Launch(
                event["pid"], event["tid"], to_ns(event["ts"]), to_ns(event["dur"]), event["name"],
                int(more.get(CORRELATION, 0)), more.get(MATCH, EXACT), stacks.find(event)))
        elif phase == "X" and category in WORK_CATEGORIES:
            work.append(Work(WORK_CATEGORIES[category], read_kernel(event, other.get("kernels", [])),
                             (event["pid"], event["tid"]), to_ns(event["ts"]), to_ns(event["dur"])))
        elif phase == "X" and category == GAP_CATEGORY:
            gaps.append(more)
        elif phase == "s":
            begins[event["id"]] = ((event["pid"], event["tid"]), to_ns(event["ts"]))
        elif phase == "f":
            ends.append((event["id"], (event["pid"], event["tid"]), to_ns(event["ts"])))
    join_arrows(launches, work, begins, ends)
    return Trace(launches, work, gaps, int(other.get("ts0_mono_ns", 0)))


def join_arrows(launches, work, begins, ends):
    by_thread = Tracks(launches, lambda launch: (launch.pid, launch.tid))
    by_stream = Tracks(work, lambda piece: piece.track)
    for number, track, at_ns in ends:
        piece = by_stream.find(track, at_ns)
        if piece is None or number not in begins:
            continue
        piece.launch = by_thread.find(*begins[number])
        piece.arrows += 1


def read_folded(text):
    """(frames, weight) of each line."""
    rows = []
    for line in text.splitlines():
        path, _, weight = line.rpartition(" ")
        rows.append((tuple(path.split(";")), float(weight)))
    return rows


def read_gpu_frame(frame):
    """(GPU's number or None, "Kernel" and the like, name) of the last frame of a folded path; None of others."""
    found = GPU_FRAME.fullmatch(frame)
    return (int(found[1]) if found[1] else None, found[2], found[3]) if found else None


def read_extended_folded(text):
    """(timestamp_ns, comm, pid, tid, cpu, frames) of each line. A comm may hold spaces, and so may frames."""
    line_form = re.compile(r"(\d+) (.+?) (\d+) (\d+) (-?\d+) (.*)")
    rows = []
    for line in text.splitlines():
        found = line_form.fullmatch(line)
        if found is None:
            raise ValueError(f"this is no line of extended folded text: {line[:200]!r}")
        rows.append((int(found[1]), found[2], int(found[3]), int(found[4]), int(found[5]),
                     tuple(found[6].split(";"))))
    return rows


@dataclasses.dataclass(slots=True)
class TruthCall:
    start_mono_ns: int
    name: str  # of the kernel, as the binary has it; "" = not told
    correlation_id: int
    outer_correlation_id: int
    tid: int
    marker: int
    callback_id: int
    result: int
    domain: int
    is_graph: bool


def read_truth(path):
    """(calls, how many there was no room for)"""
    with open(path, "rb") as file:
        content = file.read()
    if content[:8] != TRUTH_MAGIC:
        raise ValueError(f"{path} is no file of launch_truth.cpp")
    count, missed, name_count = struct.unpack_from("<QQQ", content, 8)
    place = 32 + count * TRUTH_CALL.size
    if len(content) < place:
        raise ValueError(f"{path} says {count} calls and ends before them")
    rows = TRUTH_CALL.iter_unpack(content[32:place])
    names = {0: ""}
    for _ in range(name_count):
        number, length = struct.unpack_from("<QI", content, place)
        names[number] = content[place + 12:place + 12 + length].decode(errors="replace")
        place += 12 + length
    return [TruthCall(row[0], names[row[1]], *row[2:9], bool(row[9])) for row in rows], missed


def load_chrome(path):
    with open(path, encoding="utf-8") as file:
        return read_chrome(json.load(file))
