"""What is tried inside of each kernel. Prints lines "RESULT name {json}" for kernels_test.py, and DONE at the end.

The kernel's command line says what: GPUPERF_WORK=1 the calls, slow calls and ends of processes; GPUPERF_CHURN=N so many
starts and ends of processes; GPUPERF_LOOKS=a,b what status and doctor say in those situations (LOOKS)."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import gpuperf_system  # noqa: E402 (the path above)
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
          # A BATCH of them has its rows, and there is little else to print.
          "stats": {"max_exited_processes": 600},
          "requests": {"enabled": True},
          "slow": {"default_threshold_ms": 0}}
LAUNCHES = 300
AT_ONCE = 8  # processes that start and end
BATCH = 500  # of them, until their calls are compared
Daemon.CTL_OPTIONS = ("--timeout", "100")
gpuperf_system.POLL_S = 0.5  # who asks takes the only processor from what is waited for
WAIT_S = 300  # the daemon measures what a probe costs first, which takes a minute here on a busy machine

# As the package's service starts it: its user, and the capabilities of deploy/systemd/gpuperfd.service.
SERVICE_CAPS = "+bpf,+perfmon,+sys_ptrace,+dac_read_search"
AS_SERVICE = ("setpriv", "--reuid", "998", "--regid", "998", "--clear-groups", "--bounding-set", f"-all,{SERVICE_CAPS}",
              "--inh-caps", f"-all,{SERVICE_CAPS}", "--ambient-caps", f"-all,{SERVICE_CAPS}")
PARANOID = pathlib.Path("/proc/sys/kernel/perf_event_paranoid")
BTF = "/sys/kernel/btf"


@contextlib.contextmanager
def paranoid(level):
    before = PARANOID.read_text(encoding="ascii")
    PARANOID.write_text(level, encoding="ascii")
    yield
    PARANOID.write_text(before, encoding="ascii")


@contextlib.contextmanager
def without_btf():
    """As on a kernel built without: every Debian kernel has it."""
    subprocess.run(["mount", "-t", "tmpfs", "none", BTF], check=True)
    yield
    subprocess.run(["umount", BTF], check=True)


# Name: (the situation, what starts the daemon, its arguments).
LOOKS = {
    "session": (contextlib.nullcontext, (), ("--mechanism", "session")),
    "multi": (contextlib.nullcontext, (), ("--mechanism", "multi")),
    "perf": (contextlib.nullcontext, (), ("--mechanism", "perf")),
    "paranoid_3": (lambda: paranoid("3"), AS_SERVICE, ()),
    "paranoid_4": (lambda: paranoid("4"), AS_SERVICE, ()),
    "paranoid_4_root": (lambda: paranoid("4"), (), ()),
    "no_btf": (without_btf, (), ()),
}


def read_preemption():
    """The kernel's own word for how it preempts."""
    with open("/dev/kmsg", "rb", buffering=0) as log:
        os.set_blocking(log.fileno(), False)
        with contextlib.suppress(BlockingIOError):
            while line := log.read(8192):
                if b"Dynamic Preempt: " in line:
                    return line.split(b"Dynamic Preempt: ")[1].split()[0].decode()
    return "fixed"


def describe(daemon):
    """What somebody reads of it: in status, and what doctor says of the kernel and the probes."""
    status = daemon.query("status")
    (line,) = [line for line in daemon.ctl("status").stdout.splitlines() if line.startswith("Mechanism")]
    checks = json.loads(daemon.ctl("doctor", "-o", "json", check=False).stdout)
    return {"mechanism": status["mechanism"], "status": line.split(maxsplit=1)[1],
            "problems": [[problem[key] for key in ("subject", "message", "hint")] for problem in status["problems"]],
            "doctor": checks}


def look(name):
    situation, prefix, arguments = LOOKS[name]
    with situation():
        daemon = Daemon(CONFIG, *arguments, prefix=prefix)
        if prefix:
            for path in (daemon.path, daemon.config):
                os.chown(path, 998, 998)
        try:
            daemon.start(seconds=SECONDS)
            return describe(daemon)
        except BaseException:
            print(daemon.log()[-3000:])
            raise
        finally:
            daemon.process.kill()
            daemon.process.wait()
            daemon.folder.cleanup()


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
    process = start_workload("known_causes", "--cause", "pipe", "--runs", 10, "--ms", 300, "--wait-for-file", go)
    daemon.wait_attached("cause_pipe", seconds=WAIT_S)
    go.touch()
    truth = finish_workload(process)[-1]
    calls = wait_until("slow calls", lambda: [call for call in daemon.query("slow", "list", "--pid", truth["pid"])
                                              if not call["in_flight"]], WAIT_S)
    # The last it can name: before, the daemon does not know the process yet; on a busy machine the process has ended when the
    # daemon comes to its last calls, and some wait more for the processor than for the pipe.
    for number in sorted((call["id"] for call in calls), reverse=True):
        call = daemon.query("slow", "show", number)
        found = {"duration_ns": call["duration_ns"], "blocked_ns": call["time_split"]["blocked_ns"],
                 "stack": [frame["symbol"] for frame in call["user_stack"]]}
        if any(found["stack"]) and found["blocked_ns"] > found["duration_ns"] / 2:
            break
    return found


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


def start_and_end(processes):
    """Programs that start, call count_fast twice and end, AT_ONCE at a time. Their pids, and how many of them failed."""
    program = str(WORKLOADS / "call_once")
    pids, failed = set(), 0
    for begun in range(processes):
        if begun >= AT_ONCE:
            failed += os.wait()[1] != 0
        pids.add(os.posix_spawn(program, [program], os.environ))
    for _ in range(min(AT_ONCE, processes)):
        failed += os.wait()[1] != 0
    return pids, failed


def churn(daemon, processes):
    """So many programs that start and end; their calls are compared while the daemon still has their rows."""
    # The first maps the library: it may end before that is seen.
    go = daemon.path / "go-churn"
    first = start_workload("count_calls", "--calls", 0, "--wait-for-file", go)
    daemon.wait_attached(*COUNTED, seconds=WAIT_S)
    go.touch()
    finish_workload(first)
    begin, failed, counted = time.monotonic(), 0, 0
    for _ in range(0, processes, BATCH):
        pids, some = start_and_end(BATCH)
        failed += some

        def read(pids=pids):
            rows = daemon.query("functions", "--per-process", "--function", "count_fast", "--limit", 0)
            return [row for row in rows if row["pid"] in pids]
        with contextlib.suppress(AssertionError):  # who compares shows both
            wait_until("all calls counted", lambda: sum(row["calls"] for row in read()) >= 2 * BATCH, WAIT_S)
        rows = read()
        counted += sum(row["calls"] - row["in_flight"] for row in rows if row["calls"] == 2)
    states = {row["function"]: row["state"] for row in daemon.query("probes")}
    return {"processes": processes, "failed": failed, "expected": 2 * processes, "counted": counted,
            "states": [states[name] for name in COUNTED],
            # Once, and not again.
            "attached": daemon.log().count("library probed library=" + str(WORKLOADS / "libcount_target.so")),
            "seconds": round(time.monotonic() - begin)}


def tell(name, result):
    print(f"RESULT {name} {json.dumps(result)}", flush=True)


def try_best():
    """With what the daemon chooses as root."""
    daemon = Daemon(CONFIG)
    try:
        begin = time.monotonic()
        daemon.start(seconds=SECONDS)
        tell("start", {"seconds": round(time.monotonic() - begin)})
        print(daemon.log())  # its times say what took so long
        described = describe(daemon)
        tell("best", described)
        if described["mechanism"] != "none":
            if "GPUPERF_WORK" in os.environ:
                tell("count", count(daemon))
                tell("slow", find_slow(daemon))
                tell("ends", {way: launch_and_end(daemon, way) for way in ("kill", "execute")})
            if processes := int(os.environ.get("GPUPERF_CHURN", 0)):
                tell("churn", churn(daemon, processes))
        tell("drops", daemon.query("status")["drops"])
        daemon.process.send_signal(signal.SIGTERM)
        tell("stop", {"code": daemon.process.wait(SECONDS)})
    except BaseException:
        print(daemon.log()[-3000:])
        raise
    finally:
        daemon.folder.cleanup()


def try_all():
    tell("preemption", read_preemption())
    try_best()
    for name in filter(None, os.environ.get("GPUPERF_LOOKS", "").split(",")):
        tell(name, look(name))


if __name__ == "__main__":
    try:
        try_all()
        print("DONE")
    except BaseException:  # the machine is switched off after this: whatever it was has to be seen
        traceback.print_exc(file=sys.stdout)
    sys.stdout.flush()
