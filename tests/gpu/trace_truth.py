"""Captures against the launches that the workload's own truth tells: each one there, once, of its thread, made
by the function that made it, with its kernel."""

import json
import subprocess

from trace_compare import compare_launches, compare_views
from trace_reader import read_gpu_frame
from trace_rig import Planted, capturing, learn, save, start_tracer, work_command

LAUNCHES_MIN = 90_000
TOKENS = 64
PAIR_TOKENS = 16
CHROME_LAUNCHES_MAX = 50_000  # beyond, that form leaves things out
# Label, order.
RUNS = [("eager decode", f"eager {TOKENS}"), ("kernels of Triton", "triton 2000"),
        ("products of cuBLASLt", "lt 1000"), ("CUDA graphs", "graph 500")]
THREADS, LAUNCHES_PER_THREAD = 8, 5_000


def name_thread_markers():
    return {2 * thread + odd + 1: [f"thread_{thread}_{'odd' if odd else 'even'}"]
            for thread in range(THREADS) for odd in range(2)}


def read_markers(answer):
    return {int(marker): names for marker, names in answer["markers"].items()}


def report_findings(report, label, findings):
    report.check(f"{label}: every launch is matched, with its stack", findings.holds(), findings.describe())
    return {"launches": findings.launches, "matched": findings.matched, "nested_calls": findings.nested,
            "with_stack": findings.with_stack, "named": findings.named, "wrong": dict(findings.wrong),
            "examples": findings.examples, "other_unmatched": findings.other_unmatched,
            "worst_time_error_ns": max(findings.time_errors_ns, default=0)}


def report_row(report, label, row):
    """What the list of captures says of it must be as good as what was found."""
    numbers = {key: int(row.get(key, 0)) for key in ("launches", "work", "work_matched", "ambiguous",
                                                     "events", "lost_events", "stored_bytes")}
    report.check(f"{label}: the capture says so itself",
                 numbers["work"] > 0 and numbers["work_matched"] == numbers["work"]
                 and not numbers["ambiguous"] and not numbers["lost_events"], str(numbers))
    return numbers


def run_one(report, tracer, program, label, order, markers=None):
    """One order of one program, captured and compared."""
    with capturing(tracer, program.pid) as rows:
        answer, calls = program.begin(order).end()
    number = int(rows[0]["id"])
    trace = tracer.fetch_trace(number)
    findings = compare_launches(calls, answer["begin_mono_ns"], answer["end_mono_ns"],
                                markers or read_markers(answer), trace, program.pid)
    if findings.launches <= CHROME_LAUNCHES_MAX:
        differing = compare_views(trace, tracer.fetch_chrome(number))
        report.check(f"{label}: Chrome's form says the same", not differing,
                     differing or f"{len(trace.launches)} launches, {len(trace.work)} pieces of work")
    return report_findings(report, label, findings) | {"row": report_row(report, label, rows[0])}


def run_pair(report, tracer, programs):
    """Both at once, in one capture of every process."""
    with capturing(tracer) as rows:
        for program in programs:
            program.begin(f"eager {PAIR_TOKENS}")
        ends = [program.end() for program in programs]
    trace = tracer.fetch_trace(int(rows[0]["id"]))
    results = []
    for number, (program, (answer, calls)) in enumerate(zip(programs, ends)):
        findings = compare_launches(calls, answer["begin_mono_ns"], answer["end_mono_ns"],
                                    read_markers(answer), trace, program.pid)
        label = f"two processes on one GPU, the {('first', 'second')[number]}"
        results.append(report_findings(report, label, findings))
    results.append(report_row(report, "two processes on one GPU", rows[0]))
    overlap = min(end[0]["end_mono_ns"] for end in ends) - max(end[0]["begin_mono_ns"] for end in ends)
    report.check("both processes worked at the same time", overlap > 0, f"{overlap / 1e6:.0f} ms")
    return results


def attempt(report, label, work, *arguments):
    """What `work` returns; a failure of its own leaves the others their turn."""
    try:
        return work(*arguments)
    except (RuntimeError, OSError, ValueError, KeyError) as error:
        report.check(f"{label}: compared", False, f"{type(error).__name__}: {error}"[:1500])
        return None


def check_truth(report, rig):
    seen = {}
    with start_tracer(rig) as tracer, \
            Planted(rig, work_command("eager,triton,lt,graph"), tracer.socket) as work, \
            Planted(rig, work_command("eager"), tracer.socket) as other, \
            Planted(rig, [rig.programs / "trace_threads", "serve"], tracer.socket) as threads:
        for program in (threads, work, other):
            program.wait_ready()
            tracer.wait_collecting(program.pid)
        report.say(f"     probes attached: {tracer.wait_for_probes()}")
        learn(tracer, threads, "threads 200")
        for program in (work, other):
            learn(tracer, program, "eager 2")
        for label, order in RUNS:
            seen[label] = attempt(report, label, run_one, report, tracer, work, label, order)
        decode = seen["eager decode"]
        if decode:
            report.check(f"eager decode: at least {LAUNCHES_MIN} launches in one capture",
                         decode["launches"] >= LAUNCHES_MIN, str(decode["launches"]))
        label = "8 threads, 4 streams each"
        seen[label] = attempt(report, label, run_one, report, tracer, threads, label,
                              f"threads {LAUNCHES_PER_THREAD}", name_thread_markers())
        seen["pair"] = attempt(report, "two processes", run_pair, report, tracer, (work, other))
        report.say(f"     drops of the daemon: {json.dumps(tracer.query('status')['drops'])}")
    save(rig, "trace_truth", seen)


def check_two_gpus(report, rig):
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    gpus = sum(line.startswith("GPU ") for line in listed.splitlines())
    if gpus < 2:
        report.say(f"SKIP trace_two_gpus: this host has {gpus} GPU, two are needed")
        return
    label = "two GPUs of one process"
    with start_tracer(rig) as tracer, Planted(rig, work_command("gpus"), tracer.socket) as work:
        work.wait_ready()
        tracer.wait_collecting(work.pid)
        tracer.wait_for_probes()
        learn(tracer, work, "gpus 20")
        with capturing(tracer, work.pid) as rows:
            answer, calls = work.begin("gpus 500").end()
        number = int(rows[0]["id"])
        trace, folded = tracer.fetch_trace(number), tracer.fetch_folded(number)
    findings = compare_launches(calls, answer["begin_mono_ns"], answer["end_mono_ns"],
                                read_markers(answer), trace, work.pid)
    result = report_findings(report, label, findings) | {"row": report_row(report, label, rows[0])}
    result["paths"] = check_gpu_frames(report, folded)
    save(rig, "trace_two_gpus", result)


def check_gpu_frames(report, folded):
    """Each path's kernels ran on the GPU that its function works on."""
    wrong, seen = [], {}
    for frames, weight in folded:
        gpu = read_gpu_frame(frames[-1])
        if gpu is None or gpu[1] != "Kernel":
            continue
        for name, wanted in (("work_on_first_gpu", 0), ("work_on_second_gpu", 1)):
            if any(name in frame for frame in frames):
                seen[name] = seen.get(name, 0) + weight
                if gpu[0] != wanted:
                    wrong.append(f"{name}: {frames[-1][:80]}")
    report.check("two GPUs: folded paths name the GPU of their kernels", len(seen) == 2 and not wrong,
                 f"{seen} us; {wrong[:3] or 'none on the other one'}")
    return seen
