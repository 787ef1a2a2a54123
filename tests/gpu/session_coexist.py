"""We and the other clients of CUPTI in one process: torch.profiler, Nsight Systems, Nsight Compute, a
library of somebody else. Their results are what they are without us, and we come back after them."""

import json
import os
import pathlib
import shutil
import time

from session_finalize import NO_CALLS, Program, wait_for_state
from session_receiver import PAUSE, RUN, demangle
from session_rig import finish, receive

NSYS = ["nsys", "/opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys"]
NCU = ["ncu", "/usr/local/cuda/bin/ncu"]
LAUNCHES = 20_000
SIZE_TOLERANCE = 0.02
DEBUGGED_WINDOWS, DEBUGGER_SECONDS = 100, 90
# Never from us, and never from another client because of us.
FORBIDDEN = ("bufferCompleted", "libgpuperf", "CUPTI_ERROR")


def find_tool(names):
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    return None


def find_noise(with_us, alone):
    """Lines that speak of us or of CUPTI's trouble, and are not there without us."""
    return [line for line in with_us.splitlines()
            if any(word in line for word in FORBIDDEN) and line not in alone]


def check_session_works(report, rig, receiver, after):
    """A process that starts now has a session that sends its kernels."""
    run = rig.run([rig.launcher, "end", "return", LAUNCHES], receiver.path)
    session = receiver.wait_closed(run.pid)
    seen = session.kernel_count if session else 0
    report.check(f"after {after} a next run has a session", run.code == 0 and seen == 2 * LAUNCHES,
                 f"exit {run.code}, {seen} of {2 * LAUNCHES} kernels, "
                 f"{session.status.get('state') if session else 'no session'}")


def check_profilers(report, rig, receiver):
    """torch.profiler, alone and with us: both at once, for only counts are compared."""
    processes = [rig.start(rig.work_command("profiles"), path) for path in (None, receiver.path)]
    alone, with_us = (finish(process, 150) for process in processes)
    (rig.results / "sessions_profiles.json").write_text(json.dumps(
        {"alone": alone.output, "with_us": with_us.output, "alone_stderr": alone.errors,
         "with_us_stderr": with_us.errors}, indent=1), encoding="utf-8")
    report.check("torch.profiler: exit codes", alone.code == with_us.code == 0,
                 f"alone {alone.code}, with us {with_us.code} {with_us.errors[-600:]}")
    if alone.code != 0 or with_us.code != 0:
        return
    wanted, seen = alone.json()["profiles"], with_us.json()["profiles"]
    names = ["CUDA only", "CUDA and CPU", "record_shapes", "schedule()"]
    for number, name in enumerate(names):
        mine, theirs = seen[3 * number:3 * number + 3], wanted[3 * number:3 * number + 3]
        events = [sum(sum(part.values()) for part in (entry if isinstance(entry, list) else [entry]))
                  for entry in mine]
        report.check(f"torch.profiler, {name}, three times: events as without us",
                     mine == theirs and all(events),
                     f"{events} events" if mine == theirs else f"with us {mine}; alone {theirs}"[:600])
    noise = find_noise(with_us.errors, alone.errors)
    report.check("torch.profiler: nothing on stderr because of us", not noise, str(noise[:3] or "clean"))
    session = receiver.wait_closed(with_us.pid)
    if session is None:
        report.check("torch.profiler: we had a session", False, "none")
        return
    states = [f"{status['state']} {status['cause']}" for status in session.statuses]
    changes = [state for number, state in enumerate(states) if states[number - 1:number] != [state]]
    adds = sum(count for name, (count, _) in session.totals.kernels.items()
               if "Add" in demangle(name) or "add" in demangle(name))
    # 1,000 before the first profile; 3,000 after the last, of which those within 5 s may be missed.
    report.check("torch.profiler: we collect before and after", adds >= 1000 + 1000,
                 f"{adds} additions of 4000 outside of profiles; {changes}")
    report.check("torch.profiler: CUPTI was left to it", session.status["yields"] >= 1 and
                 not session.error, f"{session.status['yields']} times, last to "
                 f"{next((s['detail'] for s in reversed(session.statuses) if s['state'] == 'yielded'), '')}; "
                 f"gaps {[(cause, round(ns / 1e9, 2)) for cause, ns in session.gaps]}; {session.error}")


def check_client(report, rig, receiver):
    count = 5_000
    alone, with_us = (finish(process) for process in [
        rig.start([rig.launcher, "client", rig.client, count], path) for path in (None, receiver.path)])
    if alone.code != 0 or with_us.code != 0:
        report.check("another client of CUPTI: exit codes", False,
                     f"alone {alone.code} {alone.errors}, with us {with_us.code} {with_us.errors}")
        return
    truth, seen = alone.json(), with_us.json()
    session = receiver.wait_closed(with_us.pid)
    report.check("another client of CUPTI gets all its records",
                 truth["client_saw"] == seen["client_saw"] == count and with_us.errors == "",
                 f"{seen['client_saw']} of {count}, alone {truth['client_saw']}, "
                 f"errors {seen['client_error']} and {truth['client_error']} {with_us.errors}")
    kernels = session.kernel_count if session else 0
    report.check("and we take up again after it", 2 * count <= kernels <= 4 * count,
                 f"{kernels} kernels of {count} before it and {3 * count} after, "
                 f"yields {session.status.get('yields') if session else 'none'}")


def run_nsys(rig, tool, name, socket):
    """Exit code, size of the report, what was said."""
    report = rig.folder / name
    run = rig.run([tool, "profile", "--trace=cuda", "--sample=none", "--cpuctxsw=none",
                   "--force-overwrite=true", "--output", report, rig.launcher, "end", "return", LAUNCHES],
                  socket, seconds=90)
    made = sorted(report.parent.glob(f"{name}.*"), key=lambda path: path.stat().st_size)
    return run, made[-1].stat().st_size if made else 0


def check_nsys(report, rig, receiver):
    tool = find_tool(NSYS)
    if tool is None:
        report.say("     nsys is not on this host: not checked")
        return
    before = len(receiver.sessions)
    alone, size_alone = run_nsys(rig, tool, "alone", None)
    with_us, size = run_nsys(rig, tool, "with_us", receiver.path)
    ran = '"how": "return"'
    report.check("nsys starts and works with our variable set",
                 with_us.code == alone.code and ran in with_us.output and with_us.in_time and size > 0,
                 f"exit {with_us.code}, alone {alone.code}; report of {size} bytes")
    report.check("its report is as large as without us",
                 size_alone > 0 and abs(size / size_alone - 1) <= SIZE_TOLERANCE,
                 f"{size} and {size_alone} bytes: {size / max(size_alone, 1):.4f}")
    # It puts a library of its own into the variable: ours is not loaded, and there is no session.
    report.say(f"     sessions from processes under nsys: {len(receiver.sessions) - before}")
    noise = find_noise(with_us.errors + with_us.output, alone.errors + alone.output)
    report.check("nothing of ours in its output", not noise, str(noise[:3] or "clean"))
    check_session_works(report, rig, receiver, "nsys")


def check_ncu(report, rig, receiver):
    tool = find_tool(NCU)
    if tool is None:
        report.say("     ncu is not on this host: not checked")
        return
    command = [tool, "--metrics", "gpu__time_duration.sum", "--launch-count", "3", rig.launcher, "end",
               "return", 100]
    with_us = rig.run(command, receiver.path, seconds=60)
    without = rig.run(command, seconds=60)
    said = (with_us.output + with_us.errors).strip()
    refusal = [line for line in said.splitlines() if "njection" in line or "INJECTION" in line]
    report.check("ncu says itself that it cannot work with CUDA_INJECTION64_PATH set",
                 with_us.in_time and refusal, f"exit {with_us.code}: {refusal[:2] or said[-400:]}")
    report.check("ncu works once the variable is unset",
                 without.code == 0 and "gpu__time_duration.sum" in without.output,
                 f"exit {without.code}: {(without.output + without.errors)[-300:]}")
    check_session_works(report, rig, receiver, "ncu")


def check_debugger(report, rig):
    """gdb stops the program at a launch while windows open and close, and lets it go on."""
    tool = find_tool(["gdb"])
    if tool is None:
        report.say("     gdb is not on this host: not checked")
        return
    command = [tool, "--batch", "--nx", "-ex", "break cuLaunchKernel", "-ex", "break cuLaunchKernelEx",
               "-ex", "info breakpoints", "-ex", "continue", "-ex", "backtrace 6", "-ex", "delete", "-ex", "detach", "-p"]
    with receive(rig, welcome={"flush_ms": 50, "kinds": NO_CALLS}) as receiver, \
            Program(rig, receiver.path, GPUPERF_SETTLE_MS="0") as program:
        program.do("spin", "work:4,launch:4,alloc:2")
        session = wait_for_state(receiver, program.pid, "collecting")
        debugger = rig.start([*command, str(program.pid)])
        for _ in range(DEBUGGED_WINDOWS):
            for mode in (RUN, PAUSE):
                session.order(mode=mode, kinds=NO_CALLS, flush_ms=50)
                time.sleep(0.02)
        debugger = finish(debugger, DEBUGGER_SECONDS)
        session.order(mode=RUN, kinds=NO_CALLS, flush_ms=50)
        wait_for_state(receiver, program.pid, "collecting")
        before = session.kernel_count
        time.sleep(1)
        work = program.do("halt")
        code, said = program.end()
    report.check("gdb stops at a launch and detaches", debugger.in_time and "hit Breakpoint" in debugger.output,
                 debugger.output[-500:] + debugger.errors[-500:])
    report.check("and the program and its session go on", (code, said, work["wrong"]) == (0, "", 0)
                 and session.kernel_count > before and not session.error,
                 f"exit {code}, {said!r}; {work}; {session.kernel_count - before} kernels afterwards; {session.error}")


def check_coexist(report, rig):
    check_debugger(report, rig)
    with receive(rig) as receiver:
        check_profilers(report, rig, receiver)
        check_client(report, rig, receiver)
        check_nsys(report, rig, receiver)
        check_ncu(report, rig, receiver)
    for path in pathlib.Path(rig.folder).glob("*.qdstrm"):
        os.remove(path)
