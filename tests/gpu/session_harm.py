"""What a workload feels of us when things go wrong: nothing. Exit codes, output, time and speed beside
the same program without us, in the same minutes on the same CPUs."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

from session_receiver import OFF, PAUSE
from session_rig import Gpuperfd, Worker, compare_speed, finish, measure, receive

ROUNDS, GENERATIONS = 8, 2  # new processes each generation: where one lies in memory matters too
LAUNCHES = 60_000           # a measurement of 0.2 s
IDLE_RATIO = 0.99
HANG_SECONDS = 60

# How it ends, and the exit code that is right.
ENDS = {"return": 0, "exit7": 7, "quick7": 7, "kill": -signal.SIGKILL, "abort": -signal.SIGABRT,
        "fork": 0, "forkexit": 0, "exec": 0, "threads": 0, "early": 7}

# Stand-ins for a libcupti that is not the right one.
OTHER_CUPTI = {
    "of CUDA 12": "int cuptiGetVersion(unsigned *v) { *v = 26; return 0; }\n" + "".join(
        f"int {name}(void) {{ return 0; }}\n" for name in (
            "cuptiActivityDisable", "cuptiActivityEnable", "cuptiActivityFlushAll",
            "cuptiActivityGetNextRecord", "cuptiActivityGetNumDroppedRecords",
            "cuptiActivityRegisterCallbacks", "cuptiActivitySetAttribute", "cuptiEnableDomain",
            "cuptiFinalize", "cuptiGetCallbackName", "cuptiGetTimestamp", "cuptiSetThreadIdType",
            "cuptiSubscribe", "cuptiUnsubscribe")),
    "without its functions": "int nothing_of_cupti(void) { return 1; }\n",
}


class Table:
    """The harm matrix: a row per case."""

    def __init__(self, report):
        self.report, self.rows = report, []

    def add(self, case, holds, speed=None, **more):
        self.rows.append({"case": case, "holds": bool(holds), "speed": speed, **more})
        ratio = "" if speed is None else f"{speed[0]:.4f} of bare ({speed[1]:.4f} to {speed[2]:.4f}), "
        self.report.check(case, holds, ratio + ", ".join(f"{key} {value}" for key, value in more.items()))

    def close(self, workers, case=""):
        """The workers' ends, which must be as without us."""
        for name, worker in workers.items():
            code, said = worker.finish(HANG_SECONDS)
            if code != 0 or said:
                self.add(f"{case or name} ends well", False, exit=code, said=repr(said[-300:]))


def start_workers(rig, sockets, **options):
    """By name: None = without us. Started at once, then awaited."""
    workers = {name: Worker(rig, [rig.launcher, "serve"], socket, **options)
               for name, socket in sockets.items()}
    for worker in workers.values():
        worker.read()
    return workers


def turn_off(receiver, workers, name):
    """A session that collected is told off; launches pass, by which CUPTI is ended."""
    session = receiver.wait(workers[name].process.pid, lambda session: session.kernel_count > 0)
    if session is None:
        return "no session"
    session.order(mode=OFF)
    workers[name].ask(f"launch {LAUNCHES}")
    session = receiver.wait(workers[name].process.pid,
                            lambda session: session.status.get("state") == "off", 5)
    workers[name].ask(f"launch {LAUNCHES}")
    return session.status["state"] if session else "not off"


def measure_levels(rig, rounds=ROUNDS, generations=GENERATIONS):
    """ns per launch and replays per second by level of collection, what became of the order to be off,
    and how the processes ended."""
    figures, graphs, states, ends = {}, {}, [], {}
    for _ in range(generations):
        with receive(rig, welcome={"kinds": 0}) as none, receive(rig, welcome={"mode": PAUSE}) as paused, \
                receive(rig) as on:
            workers = start_workers(rig, {
                "bare": None, "bare again": None, "no daemon": rig.folder / "no.sock",
                "no kinds": none.path, "paused": paused.path, "off": on.path, "always on": on.path})
            states.append(turn_off(on, workers, "off"))
            measure(workers, f"launch {LAUNCHES}", rounds, figures)
            measure(workers, "graph 40", max(rounds // 2, 2), graphs)
            for name, worker in workers.items():
                end = worker.finish(HANG_SECONDS)
                if ends.get(name, (0, "")) == (0, ""):  # the first bad one is kept
                    ends[name] = end
    return figures, graphs, states, ends


def check_idle(table, rig):
    figures, graphs, states, ends = measure_levels(rig)
    for name in list(figures)[1:]:
        launches = compare_speed(figures, name, is_rate=False)
        replays = compare_speed(graphs, name)
        is_idle = name not in ("always on", "bare again")
        table.add(f"{name}: launches", ends[name] == (0, "") and (launches[0] >= IDLE_RATIO or not is_idle),
                  launches, exit=ends[name][0])
        table.add(f"{name}: graph of 2,000 kernels", replays[0] >= IDLE_RATIO or not is_idle, replays)
    table.report.say(f"     told off: {states}")


def check_stopped(table, rig):
    """A daemon that is stopped while a workload launches, goes on, is killed and comes back ten times."""
    with rig.start_collector() as daemon:
        workers = start_workers(rig, {"bare": None, "ours": daemon.socket})
        phases = {}

        def run(phase, rounds):
            measure(workers, f"launch {LAUNCHES}", rounds, phases.setdefault(phase, {}))
        run("collecting", 5)
        daemon.send_signal(signal.SIGSTOP)
        run("stopped", 8)
        daemon.send_signal(signal.SIGCONT)
        run("going on", 3)
        for _ in range(10):
            daemon.stop(signal.SIGKILL)
            run("killed and started ten times", 1)
            daemon.start()
        for phase, figures in phases.items():
            table.add(f"daemon {phase}", True, compare_speed(figures, "ours", is_rate=False))
        table.close(workers, "daemon stopped and killed")
        started = time.monotonic()
        daemon.send_signal(signal.SIGSTOP)
        program = [rig.launcher, "end", "return", LAUNCHES // 4]
        run_stopped = rig.run(program, daemon.socket, seconds=HANG_SECONDS)
        bare_started = time.monotonic()
        bare = rig.run(program, seconds=HANG_SECONDS)
        daemon.send_signal(signal.SIGCONT)
        longer = bare_started - started - (time.monotonic() - bare_started)
        table.add("a program begins and ends under a stopped daemon",
                  run_stopped.code == bare.code == 0 and not run_stopped.errors and longer < 2,
                  exit=run_stopped.code, longer_by_s=round(longer, 2))


def check_full_socket(table, rig):
    with receive(rig, welcome={"flush_ms": 100}, reads=False) as deaf:
        workers = start_workers(rig, {"bare": None, "ours": deaf.path})
        figures = {}
        measure(workers, f"launch {LAUNCHES}", 12, figures)
        table.add("a daemon that never reads", True, compare_speed(figures, "ours", is_rate=False),
                  sessions=len(deaf.sessions))
        table.close(workers, "a daemon that never reads")


def check_full_disk(table, rig):
    if not rig.has_daemon:
        table.report.say("     the daemon takes no sessions here: a full disk was not checked")
        return
    with tempfile.TemporaryDirectory(dir=rig.folder) as store:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", store], check=True)
        try:
            folder = rig.new_path("full")
            folder.mkdir()
            with Gpuperfd(rig, folder, store).start() as daemon:
                with open(os.path.join(store, "ballast"), "wb") as ballast:
                    try:
                        while True:
                            ballast.write(bytes(65536))
                            ballast.flush()
                    except OSError:
                        pass  # full
                workers = start_workers(rig, {"bare": None, "ours": daemon.socket})
                figures = {}
                measure(workers, f"launch {LAUNCHES}", 5, figures)
                alive = daemon.process.poll() is None
                table.add("the daemon's disk is full", alive, compare_speed(figures, "ours", is_rate=False))
                table.close(workers, "the daemon's disk is full")
        except RuntimeError as error:  # it may refuse to start, which harms nobody
            table.add("the daemon's disk is full", False, error=str(error)[:200])
        finally:
            subprocess.run(["umount", "--lazy", store], check=False)


def check_ends(table, rig):
    """Every way to end, during collection; all at once, for nothing is timed but hanging."""
    with receive(rig) as receiver:
        processes = {how: [rig.start([rig.launcher, "end", how, 10_000], path)
                           for path in (None, receiver.path)] for how in ENDS}
        for how, (bare, ours) in processes.items():
            bare, ours = finish(bare, HANG_SECONDS), finish(ours, HANG_SECONDS)
            same = bare.output.count("\n") == ours.output.count("\n") and ours.errors == bare.errors
            session = receiver.wait_closed(ours.pid, 10)
            table.add(f"ends by {how}", ours.code == bare.code and same and ours.in_time,
                      exit=ours.code, bare=bare.code, expected=ENDS[how], said=repr(ours.errors[-200:]),
                      kernels=session.kernel_count if session else "no session")


def check_threads(table, rig):
    with receive(rig) as receiver:
        workers = start_workers(rig, {"bare": None, "ours": receiver.path,
                                      "no daemon": rig.folder / "no.sock"}, pinned=False)
        figures = {}
        measure(workers, "threads 64 2000", 6, figures)
        session = receiver.wait(workers["ours"].process.pid)
        lost = session.status.get("losses") if session else "no session"
        table.add("64 threads launching", session is not None, compare_speed(figures, "ours"), losses=lost)
        # The driver's own lock is fought for: rounds differ by tens of percent even without us.
        table.add("64 threads launching, no daemon", True, compare_speed(figures, "no daemon"))
        table.close(workers, "64 threads")


def check_other_cupti(table, rig):
    """The loader finds a libcupti that cannot be used."""
    major = rig.runtime.name.rsplit(".", 1)[1]
    cases = {"no library at all": (f"libcupti.so.{major}", None)}
    for what, source in OTHER_CUPTI.items():
        cases[what] = (f"libcupti.so.{major}", source)
    cases["of CUDA 12 under its name, preloaded"] = ("libcupti.so.12", OTHER_CUPTI["of CUDA 12"])
    with receive(rig) as receiver:
        for what, (name, source) in cases.items():
            folder = rig.new_path("cupti")
            folder.mkdir()
            shutil.copy(rig.runtime, folder)  # CUPTI is looked for beside it
            library = folder / name
            if source is None:
                library.write_text("this is no library\n", encoding="utf-8")
            else:
                (folder / "source.c").write_text(source, encoding="utf-8")
                subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, folder / "source.c"], check=True)
            preload = {"LD_PRELOAD": str(library)} if "preloaded" in what else {}
            run = rig.run([rig.launcher, "end", "return", 5_000], receiver.path, folder,
                          HANG_SECONDS, **preload)
            session = receiver.wait_closed(run.pid, 5)
            status = session.status if session else {}
            table.add(f"a libcupti {what}", run.code == 0 and not run.errors and run.in_time,
                      exit=run.code, said=repr(run.errors[-200:]),
                      session=f"{status.get('state')} {status.get('cause')} {status.get('detail')}")


CHECKS = (check_ends, check_other_cupti, check_stopped, check_full_socket, check_full_disk, check_threads,
          check_idle)


def check_harm(report, rig):
    table = Table(report)
    for check in CHECKS:
        started = time.monotonic()
        try:
            check(table, rig)
        except (RuntimeError, OSError) as error:  # the others still tell something
            table.add(check.__name__, False, error=str(error)[:800])
        report.say(f"     {check.__name__}: {time.monotonic() - started:.0f} s")
    width = max(len(row["case"]) for row in table.rows)
    report.say("\n".join(
        f"{row['case']:<{width}}  {'ok' if row['holds'] else 'HARM':<5}"
        + (f"{row['speed'][0]:.3f} of bare" if row["speed"] else "") for row in table.rows))
    (rig.results / "sessions_harm.json").write_text(json.dumps(table.rows, indent=1), encoding="utf-8")
