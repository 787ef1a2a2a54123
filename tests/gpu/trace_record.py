"""`gpuperfctl record`: one command, four files, and what they hold against the workload's own truth. And a
capture to keep in tests/recordings/."""

import collections
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree

from session_rig import FOLDER
from trace_compare import compare_launches, name_kernel, sum_paths
from trace_raw import read_stored
from trace_reader import load_chrome, read_extended_folded, read_folded, read_truth
from trace_rig import (INIT_WAIT, Planted, capturing, learn, make_library_path, save, start_tracer,
                       work_command)
from trace_truth import read_markers, report_findings

FILES = ("cpu.txt", "gpu.json", "merged.folded", "flamegraph.svg")
TOKENS = 8
THREADS, LAUNCHES = 8, 200
CAPTURE_BYTES_MAX = 1_000_000
# Where a new process's code is met for the first time its stacks are cut, until it has been read: how many are is
# said, and nothing to pass or fail by.
CUT = ("stack of another path", "launch without a stack")


def run_record(rig, tracer, *words, **more):
    """gpuperfctl record in a folder of its own: the folder, and how it ended."""
    folder = rig.new_path("record")
    folder.mkdir()
    # As a host's administrator has set them: where the library lies, and which socket it takes.
    environment = rig.environment(tracer.socket, more.pop("libraries", None)) | INIT_WAIT | more
    result = subprocess.run(
        [rig.bundle / "bin/gpuperfctl", "--address", tracer.address, "record", *map(str, words)], cwd=folder,
        env=environment, capture_output=True, text=True, check=False, timeout=150)
    return folder, result


def read_numbers(text):
    """Every whole number of a text: 1,234 is one."""
    return {int(word.replace(",", "")) for word in re.findall(r"\d[\d,]*\d|\d", text)}


def check_files(report, folder, trace):
    lines = read_extended_folded((folder / "cpu.txt").read_text(encoding="utf-8"))
    report.check("record: cpu.txt has a line for each launch", 0 < len(lines) == len(trace.launches),
                 f"{len(lines)} lines, {len(trace.launches)} launches")
    times = [line[0] for line in lines]
    report.check("record: cpu.txt is in order of time", times == sorted(times), f"{len(times)} lines")
    folded = read_folded((folder / "merged.folded").read_text(encoding="utf-8"))
    total_us = sum(sum_paths(folded, re.compile("$^")).values())
    kernels_us = sum(piece.duration_ns for piece in trace.work if piece.kind == "kernel") / 1000
    report.check("record: merged.folded adds up to the kernels of gpu.json",
                 kernels_us > 0 and abs(total_us - kernels_us) <= 1, f"{total_us:.3f} and {kernels_us:.3f} us")
    text = (folder / "flamegraph.svg").read_text(encoding="utf-8")
    root = xml.etree.ElementTree.fromstring(text)
    report.check("record: flamegraph.svg is a picture of these paths",
                 root.tag.endswith("svg") and "layer_00" in text and "Attention.forward" in text,
                 f"{len(text)} bytes, {root.tag}")


def check_whole(report, rig, tracer):
    truth_path = rig.new_path("truth")
    folder, result = run_record(
        rig, tracer, "--", sys.executable, FOLDER / "trace_work.py", "run", "eager", "--count", TOKENS,
        "--truth-file", truth_path, LAUNCH_TRUTH=str(rig.truth))
    said = result.stdout + result.stderr
    made = sorted(os.listdir(folder))
    report.check("record: the command ran, and four files were written",
                 result.returncode == 0 and set(FILES) <= set(made), f"exit {result.returncode}, {made}; "
                 f"{said[-700:] if result.returncode else ''}")
    if not set(FILES) <= set(made):
        return None
    answers = [line for line in result.stdout.splitlines() if line.startswith('{"pid"')]
    report.check("record: what the command prints is passed on", len(answers) == 1, f"{len(answers)} lines")
    summary = "\n".join(line for line in said.splitlines() if not line.startswith("{"))
    report.say(summary)
    answer, (calls, _) = json.loads(answers[0]), read_truth(truth_path)
    trace = load_chrome(folder / "gpu.json")
    findings = compare_launches(calls, 0, 1 << 63, read_markers(answer["parts"]["eager"]), trace, answer["pid"])
    others = {what: count for what, count in findings.wrong.items() if what not in CUT}
    report.check("record, the whole process: every launch is matched", findings.launches > 0 and not others,
                 f"{findings.launches} launches; {others or 'none wrong'}")
    report.say(f"     {findings.with_stack} of {findings.launches} launches of a new process with their whole stack")
    seen = {"launches": findings.launches, "with_stack": findings.with_stack, "wrong": dict(findings.wrong)}
    kernels = sum(piece.kind == "kernel" for piece in trace.work)
    report.check("record: it says how many launches and pieces of GPU work there were",
                 {len(trace.work), len(trace.launches)} <= read_numbers(summary),
                 f"{len(trace.work)} pieces of work, {len(trace.launches)} launches in gpu.json")
    check_files(report, folder, trace)
    return seen | {"kernels": kernels, "said": summary[-2000:]}


def check_modes(report, rig, tracer):
    """One side only, under names of one's own."""
    program = [rig.programs / "trace_threads", "run", LAUNCHES]
    wanted = THREADS * LAUNCHES
    folder, result = run_record(rig, tracer, "--cpu-only", "-c", "own.txt", "--", *program,
                                libraries=make_library_path(rig))
    made, lines = sorted(os.listdir(folder)), []
    if "own.txt" in made:
        lines = read_extended_folded((folder / "own.txt").read_text(encoding="utf-8"))
    planted = sum(any(re.search(r"\bthread_\d_(even|odd)\b", frame) for frame in line[5]) for line in lines)
    report.check("record --cpu-only -c: the launches, and no GPU's file",
                 result.returncode == 0 and len(lines) == wanted and "gpu.json" not in made,
                 f"exit {result.returncode}, {made}, {len(lines)} of {wanted} {result.stderr[-300:]}")
    report.say(f"     {planted} of {len(lines)} with their whole stack")
    folder, result = run_record(rig, tracer, "--gpu-only", "-p", "own.json", "--", *program,
                                libraries=make_library_path(rig))
    made, kernels = sorted(os.listdir(folder)), 0
    if "own.json" in made:
        kernels = sum(piece.kind == "kernel" for piece in load_chrome(folder / "own.json").work)
    report.check("record --gpu-only -p: the kernels, and no launches' file",
                 result.returncode == 0 and kernels == wanted and "cpu.txt" not in made,
                 f"exit {result.returncode}, {made}, {kernels} of {wanted} {result.stderr[-300:]}")


def check_record(report, rig):
    with start_tracer(rig) as tracer:
        seen = check_whole(report, rig, tracer)
        check_modes(report, rig, tracer)
    save(rig, "trace_record", seen)


def sum_expected(trace, folded, row, findings):
    """What a capture's readers must find in it."""
    kernels = collections.defaultdict(lambda: [0, 0])
    for piece in trace.work:
        entry = kernels[name_kernel(piece.name) if piece.kind == "kernel" else piece.kind]
        entry[0] += 1
        entry[1] += piece.duration_ns
    layers = sum_paths(folded, re.compile(r"\blayer_\d\d\b"))
    return {"launches": len(trace.launches), "work": len(trace.work), "kernels": kernels,
            "launches_by_match": collections.Counter(launch.match for launch in trace.launches),
            "threads": len({launch.tid for launch in trace.launches}),
            "distinct_stacks": len({launch.stack for launch in trace.launches}),
            "kernel_us_by_layer": {name or "elsewhere": round(total, 3) for name, total in layers.items()},
            "truth": {"launches": findings.launches, "matched": findings.matched},
            "row": {key: row[key] for key in ("launches", "work", "work_matched", "ambiguous") if key in row}}


def check_record_capture(report, rig):
    """A second of decoding or less, as small as a repository wants it."""
    with start_tracer(rig) as tracer, \
            Planted(rig, work_command("eager", "--small"), tracer.socket) as work:
        work.wait_ready()
        tracer.wait_collecting(work.pid)
        tracer.wait_for_probes()
        learn(tracer, work, "eager 2")
        for tokens in (48, 24, 12, 6, 3):
            with capturing(tracer, work.pid) as rows:
                answer, calls = work.begin(f"eager {tokens}").end()
            number = int(rows[0]["id"])
            path = tracer.fetch(number, "raw", rig.results / "decode.capture")
            if path.stat().st_size < CAPTURE_BYTES_MAX:
                break
        trace, folded = read_stored(path.read_bytes()), tracer.fetch_folded(number)
    findings = compare_launches(calls, answer["begin_mono_ns"], answer["end_mono_ns"],
                                read_markers(answer), trace, work.pid)
    report_findings(report, "the capture to keep", findings)
    expected = sum_expected(trace, folded, rows[0], findings) | {"tokens": tokens}
    (rig.results / "decode.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n",
                                             encoding="utf-8")
    report.check(f"decode.capture is smaller than {CAPTURE_BYTES_MAX} bytes",
                 0 < path.stat().st_size < CAPTURE_BYTES_MAX, f"{path.stat().st_size} bytes, {tokens} tokens, "
                 f"{len(trace.launches)} launches")
