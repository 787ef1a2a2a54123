"""What is tried inside of each kernel. Prints lines "RESULT name {json}" for kernels_test.py, and DONE at the end."""

import json
import pathlib
import signal
import subprocess
import sys
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from gpuperf_system import WORKLOADS, Daemon, finish_workload, get_calls, start_workload, wait_until  # noqa: E402

# By function, how its end is seen: at its exits where an exception may pass, else by a return probe.
COUNTED = {"count_fast": False, "count_status": False, "count_nested": True, "count_recurse": True}
CALLS = 2000  # per thread and function
THREADS = 8   # on one processor: they are preempted within probes, where the kernel does that
SECONDS = 400  # for the daemon's start and end: the kernel's verifier is emulated, too
CONFIG = {"custom_sym": {name: {"symbol": name, "may_throw": may_throw} for name, may_throw in COUNTED.items()} |
                        {"cause_pipe": {"symbol": "cause_pipe", "may_throw": False, "slow_threshold_ms": 20}},
          "libraries": {"custom_sym": [str(WORKLOADS / "libcount_target.so"), str(WORKLOADS / "known_causes")]},
          "cuda_func_sym": {"cuLaunchKernel": {"symbol": "cuLaunchKernel", "may_throw": False}},
          "slow": {"default_threshold_ms": 0}}
LAUNCHES = 300
Daemon.CTL_OPTIONS = ("--timeout", "100")
WAIT_S = 300  # the daemon measures what a probe costs first, which takes a minute here on a busy machine


def count(daemon):
    """Calls by function: the workload's own and ours; and what of them was not timed."""
    go = daemon.path / "go"
    process = start_workload("count_calls", "--threads", THREADS, "--calls", CALLS, "--recurse", 10,
                             "--wait-for-file", go)
    daemon.wait_attached(*COUNTED, seconds=WAIT_S)
    go.touch()
    (truth,) = finish_workload(process)
    expected = get_calls(truth)
    rows = daemon.wait_for_counts(truth["pid"], expected, WAIT_S)
    return {"expected": expected, "counted": {name: row["calls"] for name, row in rows.items()},
            "open": sum(row["in_flight"] + row["abandoned"] for row in rows.values()),
            "untimed": sum(row["untimed"] for row in rows.values())}


def find_slow(daemon):
    """One call that waits on a pipe."""
    go = daemon.path / "go-slow"
    process = start_workload("known_causes", "--cause", "pipe", "--runs", 30, "--ms", 60, "--wait-for-file", go)
    daemon.wait_attached("cause_pipe", seconds=WAIT_S)
    go.touch()
    truth = finish_workload(process)[-1]
    calls = wait_until("slow calls", lambda: [call for call in daemon.query("slow", "list", "--pid", truth["pid"])
                                              if not call["in_flight"]], WAIT_S)
    # The last: by then the daemon knows the process.
    call = daemon.query("slow", "show", max(call["id"] for call in calls))
    return {"duration_ns": call["duration_ns"], "blocked_ns": call["time_split"]["blocked_ns"],
            "stack": [frame["symbol"] for frame in call["user_stack"]]}


def launch_and_end(daemon, way):
    """Launches that a process counted by itself and never noted, as they are known after its end."""
    with subprocess.Popen([WORKLOADS / "hooked_launches"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        def do(line):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())
        wait_until("hooks that count", lambda: do("semaphores")["count"] > 0, WAIT_S)
        daemon.wait_attached("cuLaunchKernel", seconds=WAIT_S)
        do(f"launch {LAUNCHES} 0 0")
        if way == "kill":
            process.kill()
        else:
            do("execute")
        seen = daemon.wait_for_counts(process.pid, {"cuLaunchKernel": LAUNCHES}, WAIT_S).get("cuLaunchKernel", {})
        process.kill()
    return [seen.get(key) for key in ("calls", "calls_hooked", "abandoned", "in_flight")]


def tell(name, result):
    print(f"RESULT {name} {json.dumps(result)}", flush=True)


def try_all():
    daemon = Daemon(CONFIG)
    try:
        daemon.start(seconds=SECONDS)
        status = daemon.query("status")
        tell("status", {"mechanism": status["mechanism"], "problems": status["problems"]})
        tell("count", count(daemon))
        tell("slow", find_slow(daemon))
        tell("ends", {way: launch_and_end(daemon, way) for way in ("kill", "execute")})
        tell("drops", daemon.query("status")["drops"])
        daemon.process.send_signal(signal.SIGTERM)
        tell("stop", {"code": daemon.process.wait(SECONDS)})
    except BaseException:
        print(daemon.log()[-3000:])
        raise


if __name__ == "__main__":
    try:
        try_all()
        print("DONE")
    except BaseException:  # the machine is switched off after this: whatever it was has to be seen
        traceback.print_exc(file=sys.stdout)
    sys.stdout.flush()
