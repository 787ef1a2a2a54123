"""A capture against the truth of the same launches. No GPU, no process: rows in, findings out."""

import collections
import dataclasses
import functools
import json
import re

from session_receiver import demangle
from trace_reader import AMBIGUOUS, EXACT, read_gpu_frame

EXAMPLES = 3
# A callback and the call's own record of its begin are some us apart; longer when the thread is
# interrupted in between. Far below the time in which a correlation id could come again.
TIME_TOLERANCE_NS = 20_000_000
NAME_LENGTH = 900  # mangled names come with up to 1,024 bytes: longer ones are cut, or stay mangled
NAME = re.compile(r"[\w.]+")  # of a function, in a frame "Attention.forward (trace_work.py)"


@dataclasses.dataclass
class Findings:
    """How many of each, and the first few of what is wrong."""
    launches: int = 0         # of the truth, in the window, that returned well
    nested: int = 0           # driver calls that runtime calls made: not launches of their own
    failed: int = 0           # launching calls that returned an error
    matched: int = 0          # launches all of whose claims hold
    with_stack: int = 0       # of those with a marker: the stack was compared
    named: int = 0            # the kernel's name was compared
    other_unmatched: int = 0  # copies and sets without a launch
    time_errors_ns: list = dataclasses.field(default_factory=list)
    wrong: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    examples: dict = dataclasses.field(default_factory=dict)

    def add(self, what, detail):
        self.wrong[what] += 1
        if len(self.examples.setdefault(what, [])) < EXAMPLES:
            self.examples[what].append(detail)

    def holds(self):
        return self.matched == self.launches > 0 and self.with_stack > 0 and not self.wrong

    def describe(self):
        ratio = 100 * self.matched / self.launches if self.launches else 0
        times = sorted(self.time_errors_ns) or [0]
        text = f"{self.matched} of {self.launches} launches matched ({ratio:.4f} %), " \
               f"{self.with_stack} by the function that made them, {self.named} by the kernel's name; " \
               f"ambiguous {self.wrong['launch is ambiguous']}, " \
               f"unmatched {self.wrong['no launch'] + self.wrong['no work'] + self.wrong['unmatched work']}; " \
               f"begins differ by {times[len(times) // 2] / 1000:.1f} us, at most {times[-1] / 1000:.0f}"
        if self.failed:
            text += f"; {self.failed} calls failed"
        if self.other_unmatched:
            text += f"; {self.other_unmatched} copies and sets without a launch"
        rest = {what: count for what, count in self.wrong.items() if count}
        return text + (f"; {rest}, for instance {json.dumps(self.examples)[:1500]}" if rest else "")


@functools.lru_cache(maxsize=None)
def name_kernel(name):
    """One spelling of a kernel's name, mangled or not."""
    return "".join((demangle(name) if name.startswith("_Z") else name).split())[:NAME_LENGTH]


def has_names(stack, names):
    """Whether each name is a function of the stack: "path_1" is not "path_10"."""
    functions = {word for frame in stack for word in NAME.findall(frame)}
    return all(name in functions or any(word.endswith("." + name) for word in functions) for name in names)


def group_calls(calls, begin_ns, end_ns, findings):
    """Outermost calls of the window that returned well, each with every id that its record may have."""
    groups = {}
    for call in calls:
        if not begin_ns <= call.start_mono_ns <= end_ns:
            continue
        if call.outer_correlation_id:
            findings.nested += 1
            if call.outer_correlation_id in groups:
                groups[call.outer_correlation_id][1].add(call.correlation_id)
        elif call.result != 0:
            findings.failed += 1
        else:
            groups[call.correlation_id] = (call, {call.correlation_id})
    return list(groups.values())


def judge_launch(call, launch, error_ns, markers, findings):
    """Adds what the capture says otherwise of a call than the truth."""
    told = {"call": dataclasses.asdict(call), "launch": {
        "tid": launch.tid, "match": launch.match, "later_by_ns": error_ns,
        "stack": launch.stack and launch.stack[-12:]}}
    findings.time_errors_ns.append(abs(error_ns))
    if abs(error_ns) > TIME_TOLERANCE_NS:
        findings.add("launch at another time", told)
    if launch.tid != call.tid:
        findings.add("launch of another thread", told)
    if launch.match != EXACT:
        findings.add(f"launch is {launch.match}", told)
    names = markers.get(call.marker)
    if names is None:
        if call.marker != 0:
            findings.add("marker without a meaning", told)
    elif not launch.stack:
        findings.add("launch without a stack", told)
    elif not has_names(launch.stack, names):
        findings.add("stack of another path", told | {"wanted": names})
    else:
        findings.with_stack += 1


def judge_work(call, launch, pieces, findings):
    """Adds what is wrong with the work of a call: there must be one piece, of the right name, begun later."""
    if len(pieces) != 1:
        findings.add("no work" if not pieces else "work more than once", dataclasses.asdict(call))
        return
    piece = pieces[0]
    told = {"call": dataclasses.asdict(call), "work": piece.name[:200]}
    if piece.arrows != 1:
        findings.add("work with several arrows", told)
    if piece.start_ns < launch.start_ns:
        findings.add("work before its launch", told)
    if call.name:
        if name_kernel(call.name) != name_kernel(piece.name):
            findings.add("work of another name", told)
        else:
            findings.named += 1


class Capture:
    """Launches of one process by correlation id, and their work."""

    def __init__(self, trace, pid):
        self.launches, self.work = collections.defaultdict(list), collections.defaultdict(list)
        for launch in trace.launches:
            if launch.pid == pid:
                self.launches[launch.correlation_id].append(launch)
        for piece in trace.work:
            if piece.kind in ("kernel", "graph") and piece.launch is not None and piece.launch.pid == pid:
                self.work[piece.launch.correlation_id, piece.kind == "graph"].append(piece)


def compare_call(call, ids, markers, capture, start_mono_ns, findings):
    launches = [launch for number in ids for launch in capture.launches.get(number, ())]
    if len(launches) != 1:
        findings.add("no launch" if not launches else "launch more than once", dataclasses.asdict(call))
        return
    before = findings.wrong.total()
    error_ns = launches[0].start_ns + start_mono_ns - call.start_mono_ns
    judge_launch(call, launches[0], error_ns, markers, findings)
    pieces = [piece for number in ids for piece in capture.work.get((number, call.is_graph), ())]
    judge_work(call, launches[0], pieces, findings)
    findings.matched += findings.wrong.total() == before


def compare_launches(calls, begin_ns, end_ns, markers, trace, pid):
    """Every launch of a process in the window, against the capture. `markers`: what functions a call with that
    number was made by. The process launches nothing outside of its window while the capture runs."""
    findings, capture = Findings(), Capture(trace, pid)
    known = set()
    for call, ids in group_calls(calls, begin_ns, end_ns, findings):
        findings.launches += 1
        known.update((number, call.is_graph) for number in ids)
        compare_call(call, ids, markers, capture, trace.start_mono_ns, findings)
    for key, pieces in capture.work.items():
        for piece in pieces if key not in known else ():
            findings.add("work of no call", {"work": piece.name[:80], "correlation_id": key[0]})
    for launch in trace.launches:  # those that no call of the truth led to
        if launch.pid == pid and launch.match == AMBIGUOUS and (launch.correlation_id, False) not in known:
            findings.add("launch is ambiguous", {"correlation_id": launch.correlation_id})
    for piece in trace.work:
        if piece.launch is None and piece.kind in ("kernel", "graph"):
            findings.add("unmatched work", {"kind": piece.kind, "work": piece.name[:80]})
        findings.other_unmatched += piece.launch is None and piece.kind in ("copy", "set")
    for gap in trace.gaps:
        findings.add("gap", gap)
    return findings


def compare_views(trace, chrome):
    """What Chrome's form of a capture says otherwise than the capture itself, as text; "" = nothing."""
    def list_launches(view):
        return collections.Counter((launch.pid, launch.tid, launch.start_ns + view.start_mono_ns, launch.name,
                                    launch.match) for launch in view.launches)

    def list_work(view):
        return collections.Counter(
            (piece.kind, piece.start_ns + view.start_mono_ns, piece.duration_ns, piece.launch and (
                piece.launch.tid, piece.launch.start_ns + view.start_mono_ns)) for piece in view.work)
    parts = []
    for what, mine, theirs in (("launches", list_launches(trace), list_launches(chrome)),
                               ("work", list_work(trace), list_work(chrome))):
        if mine != theirs:
            parts.append(f"{what}: {(mine - theirs).total()} are missing, {(theirs - mine).total()} too many, "
                         f"like {list((mine - theirs) or (theirs - mine))[0]}")
    return "; ".join(parts)


def sum_paths(folded, pattern):
    """Microseconds of kernels by the frame that fits the pattern; "" = none does."""
    totals = collections.Counter()
    for frames, weight in folded:
        gpu = read_gpu_frame(frames[-1])
        if gpu is None or gpu[1] != "Kernel":
            continue
        found = next((match[0] for frame in frames if (match := pattern.search(frame))), "")
        totals[found] += weight
    return totals


def sum_profiles(requests, kind, pid, pattern):
    """Nanoseconds by the match of `pattern` in a stack, of a process's profiles of one kind in requests of OTLP as JSON; "none"
    where no frame matches."""
    sums = collections.Counter()
    for request in requests:
        tables = request["dictionary"]
        texts = tables["string_table"]
        for of_resource in request["resource_profiles"]:
            owner = {row["key"]: row["value"] for row in of_resource["resource"]["attributes"]}
            if int(owner["process.pid"]["int_value"]) != pid:
                continue
            for profile in of_resource["scope_profiles"][0]["profiles"]:
                if texts[profile["sample_type"]["type_strindex"]] != kind:
                    continue
                for sample in profile["samples"]:
                    frames = (texts[tables["function_table"][line["function_index"]].get("name_strindex", 0)]
                              for location in tables["stack_table"][sample["stack_index"]]["location_indices"]
                              for line in tables["location_table"][location]["lines"])
                    found = next(filter(None, map(pattern.search, frames)), None)
                    sums[found[0] if found else "none"] += int(sample["values"][0])
    return sums


def count_paths(trace, pattern):
    """Launches of kernels by the frame that fits the pattern; "" = none does."""
    counts = collections.Counter()
    for piece in trace.work:
        if piece.kind == "kernel":
            stack = piece.launch.stack if piece.launch else None
            counts[next((match[0] for frame in stack or () if (match := pattern.search(frame))), "")] += 1
    return counts


def compare_paths(truth_ns, folded_us, tolerance):
    """(worst deviation as a ratio, [what deviates by more])"""
    worst, wrong = 0.0, []
    for path, wanted_ns in truth_ns.items():
        deviation = folded_us.get(path, 0) * 1000 / wanted_ns - 1
        worst = max(worst, abs(deviation))
        if abs(deviation) > tolerance:
            wrong.append(f"{path}: {folded_us.get(path, 0):.1f} us of {wanted_ns / 1000:.1f}")
    wrong += [f"{path or 'no planted path'}: {total:.1f} us, and should not be there"
              for path, total in folded_us.items() if path not in truth_ns]
    return worst, wrong
