"""What a session tells, against torch.profiler's account of the same work in a run of its own, and
against a program's own count of twenty million records."""

import json
import time

from session_receiver import BURST_NODES, KERNEL, LEVEL_NODES
from session_rig import finish, merge_names, receive

WORKS = ["eager", "train", "graph", "streams"]
DURATION_TOLERANCE = 0.01
TIMED = ("eager", "train")  # the others have too few kernels outside of graphs
# 8 x 400,000 launches and 10,000 replays of 2,000 nodes: 23.2 million kernels.
# Launches have two records each; the burst by node stays under what one may show (injector/burst.cpp).
VOLUME_THREADS, VOLUME_LAUNCHES, VOLUME_REPLAYS, NODES = 8, 1_300_000, 1_000, 2_000
WARM_REPLAYS = 20
VOLUME_RECORDS = 20_000_000
BURST_SECONDS = 60


def compare_kernels(ours, truth):
    """What differs in names or launches, as text; empty = nothing."""
    mine, theirs = merge_names(ours), merge_names(truth)
    differing = {name: (mine.get(name, [0])[0], theirs.get(name, [0])[0])
                 for name in mine.keys() | theirs.keys()
                 if mine.get(name, [0])[0] != theirs.get(name, [0])[0]}
    return "; ".join(f"{name[:120]}: {counts[0]}, profiler {counts[1]}"
                     for name, counts in sorted(differing.items())[:8])


def sum_launches(table):
    return sum(count for count, _ in table.values())


def sum_ns(table):
    return sum(total for _, total in table.values())


def describe_table(table):
    return ", ".join(f"{key}: {count} x, {total} bytes" for key, (count, total) in sorted(table.items()))


def as_lists(table):
    return {key: list(entry) for key, entry in table.items()}


def compare_work(report, label, ours, truth, run_truth=None):
    """`run_truth` measures again where times are compared."""
    report.check(f"{label}: kernels by name equal torch.profiler's",
                 not (text := compare_kernels(ours["kernels"], truth["kernels"])) and truth["kernels"],
                 text or f"{sum_launches(ours['kernels'])} launches of {len(ours['kernels'])} kernels")
    report.check(f"{label}: no kernel inside a graph is sent outside of a burst", not ours["nodes"],
                 f"{sum_launches(ours['nodes'])}; profiler {sum_launches(truth['nodes'])}")
    for what in ("copies", "sets"):
        report.check(f"{label}: {what} by direction and memory, with their bytes",
                     as_lists(ours[what]) == as_lists(truth[what]),
                     describe_table(ours[what]) if ours[what] == truth[what] else
                     f"{describe_table(ours[what])}; profiler {describe_table(truth[what])}")
    report.check(f"{label}: launches of graphs", ours["graph_launches"] == truth["graph_launches"],
                 f"{ours['graph_launches']}; profiler {truth['graph_launches']}")
    waits = {kind: ours["syncs"].get(kind, 0) for kind in ("event", "stream", "context")}
    report.say(f"     {label}: waits {waits}; profiler {truth['syncs']}, its own among them")
    if run_truth is None:
        return
    total, wanted = sum_ns(ours["kernels"]), sum_ns(truth["kernels"])
    near, spread = abs(total / wanted - 1) <= DURATION_TOLERANCE, ""
    if not near:  # the GPU's own spread: what the profiler says of the same work once more
        again = sum_ns(run_truth()["kernels"])
        near = min(again, wanted) * 0.99 <= total <= max(again, wanted) * 1.01
        spread = f", and {again / 1e6:.2f} ms in another run"
    report.check(f"{label}: time of the kernels within 1 %", near,
                 f"{total / 1e6:.2f} ms; profiler {wanted / 1e6:.2f} ms{spread}")


class Source:
    """Where records are read: the daemon, through gpuperfctl, or the stand-in in this process."""

    def __init__(self, rig, **welcome):
        self.daemon = rig.start_collector() if rig.has_daemon else None
        self.receiver = None if self.daemon else receive(rig, welcome=welcome)
        self.socket = self.daemon.socket if self.daemon else self.receiver.path

    def __enter__(self):
        return self

    def __exit__(self, *_):
        (self.daemon.stop if self.daemon else self.receiver.close)()

    def totals(self, pid):
        if self.daemon:
            return self.daemon.wait_totals(pid)
        session = self.receiver.wait_closed(pid)
        if session is None or session.error:
            raise RuntimeError(f"session of {pid}: {session and session.error or 'none'}")
        return session.totals.as_json()

    def state(self, pid):
        """(records received, records lost, losses, cause and detail)"""
        if self.daemon:
            session = self.daemon.sessions(pid)[0]
            return (int(session["received_records"]), int(session["lost_records"]), session["losses"],
                    f"{session['cause']} {session['detail']}")
        session = self.receiver.find(pid)[-1]
        status = session.status
        return (session.counted(), session.lost(), status.get("losses"),
                f"{status.get('cause')} {status.get('detail')}")


def check_truth(report, rig):
    seen = {}
    with Source(rig) as source:
        report.say(f"records are read by {'gpuperfd' if source.daemon else 'the stand-in'}")
        for work in WORKS:
            ours_run = rig.run_work(work, socket=source.socket)
            ours = source.totals(ours_run["pid"])
            truth = rig.run_work(work, "--profile")
            compare_work(report, work, ours, truth,
                         (lambda work=work: rig.run_work(work, "--profile")) if work in TIMED else None)
            received, lost, losses, state = source.state(ours_run["pid"])
            report.check(f"{work}: nothing lost", lost == 0 and ours_run["injected"],
                         f"{received} records received, losses {losses or 'none'}, {state}")
            seen[work] = {"ours": ours, "profiler": truth}
        pair = [rig.start(rig.work_command("eager"), source.socket) for _ in range(2)]
        for number, process in enumerate(pair):
            result = finish(process).json()
            compare_work(report, f"two processes, the {('first', 'second')[number]}",
                         source.totals(result["pid"]), seen["eager"]["profiler"])
    (rig.results / "sessions_truth.json").write_text(json.dumps(seen, indent=1), encoding="utf-8")


def start_burst(source, pid):
    """True once kernels inside graphs are recorded."""
    if source.daemon:
        source.daemon.ctl("sessions", "burst", pid, "--nodes", "--for", f"{BURST_SECONDS}s")
        return source.daemon.wait(pid, lambda session: "nodes" in session["level"]) is not None
    source.receiver.find(pid)[-1].order(kinds=1 << KERNEL, burst=BURST_NODES,
                                        burst_ms=BURST_SECONDS * 1000)
    return source.receiver.wait(
        pid, lambda session: session.status.get("level", 0) & LEVEL_NODES) is not None


def check_volume(report, rig):
    ready, go = rig.new_path("ready"), rig.new_path("go")
    # The stand-in asks for kernels alone: then every loss is one.
    with Source(rig, kinds=1 << KERNEL) as source:
        process = rig.start([rig.launcher, "volume", VOLUME_THREADS, VOLUME_LAUNCHES, VOLUME_REPLAYS,
                             ready, go], source.socket, GPUPERF_NODE_BURSTS="1")
        deadline = time.monotonic() + 60
        while not ready.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1)  # what was launched has arrived: nothing of it falls into the change of collection
        is_burst = start_burst(source, process.pid)
        go.touch()
        truth = finish(process, 100).json()
        totals = source.totals(truth["pid"])
        received, lost, losses, state = source.state(truth["pid"])
    launched = truth["launches"] + truth["nodes"]
    kernels = sum_launches(totals["kernels"]) + sum_launches(totals["nodes"])
    report.say(f"{truth['launches']} launches, {truth['replays']} replays of {NODES} kernels in "
               f"{truth['seconds']} s; {received} records received, losses {losses or 'none'}, {state}; "
               f"graphs {totals['graph_launches']}")
    report.check("a burst shows the kernels inside graphs", is_burst, state)
    report.check("at least 20 million records in one run", received + lost >= VOLUME_RECORDS,
                 f"{received} received, {lost} counted as lost")
    short = launched - kernels
    report.check("received and counted losses are what was launched",
                 short == lost if source.receiver else 0 <= short <= lost,
                 f"{kernels} of {launched} kernels, {short} short, {lost} losses counted")
    report.check("launches of graphs outside of the burst", totals["graph_launches"] == WARM_REPLAYS,
                 f"{totals['graph_launches']} of {WARM_REPLAYS}")
    (rig.results / "sessions_volume.json").write_text(
        json.dumps({"truth": truth, "totals": totals, "losses": losses}, indent=1), encoding="utf-8")
