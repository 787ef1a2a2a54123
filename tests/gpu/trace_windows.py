"""Windows of collection: sessions pause and go on while their programs launch without a break. In each window every
launch has to find its kernel, with CUPTI kept in between, or ended and begun anew. What is planted: the kernel's parity by
thread and stream in one program. And what a decode costs from a daemon's first second on, as shipped."""

import contextlib
import re
import statistics
import threading
import time

from session_rig import Worker
from trace_rig import Planted, Tracer, capturing, save, start_tracer, work_command

WINDOWS = 6
CAPTURE_SECONDS = 0.25
PAUSE_SECONDS = 0.02
DECODE_TOKENS = 120
THREADS_ORDER, DECODE_ORDER = "threads 300", f"eager {DECODE_TOKENS}"
PARITY = re.compile(r"thread_(\d)_(even|odd)")
# What becomes of CUPTI in between, and after how long a life of the process.
BETWEEN = {"kept": ("CUPTI stays attached at first", {"GPUPERF_SETTLE_MS": "3600000"}),
           "ended": ("CUPTI is finalised", {"GPUPERF_SETTLE_MS": "0"})}
COST_ORDER, COST_ROUNDS = "rate 4", 4
BARE_SECONDS, FIRST_SECONDS, LEAVE_SECONDS, LATER_SECONDS = 4, 10, 6, 60
COST_MAX = {f"first {FIRST_SECONDS} s": 1.03, "the minute after": 1.01}


@contextlib.contextmanager
def launching(program):
    """The program launches in the meantime, and waits for its GPU now and then."""
    is_over, rounds = threading.Event(), []

    def work():
        while not is_over.is_set():
            rounds.append(program.ask(THREADS_ORDER))
            time.sleep(PAUSE_SECONDS)  # 100,000 launches a second; at 400,000 the log of calls runs over
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield rounds
    finally:
        is_over.set()
        thread.join()


def switch(tracer, programs, word, condition):
    for program in programs:
        tracer.do("sessions", word, program.pid)
    missed = [program.pid for program in programs if tracer.wait(program.pid, condition, 10) is None]
    if missed:
        raise RuntimeError(f"sessions {word}: not in 10 s: {[tracer.sessions(pid)[:1] for pid in missed]}")


def judge(trace):
    """Kernels, those with an exact launch, those whose stack tells their parity, those of the wrong one."""
    work = [piece for piece in trace.work if piece.kind == "kernel"]
    exact = [piece for piece in work if piece.launch is not None and piece.launch.match == "exact"]
    of_threads = [(found, piece) for piece in exact if (found := PARITY.search(" ".join(piece.launch.stack or ())))]
    wrong = [f"{found[0]} launched {piece.name}" for found, piece in of_threads if found[2] not in piece.name]
    return {"kernels": len(work), "exact": len(exact), "of_threads": len(of_threads), "wrong": wrong[:3]}


def read_held_ms(tracer, pid):
    """(count, ms) of what launches have waited for windows."""
    overheads = {row["type"]: row for session in tracer.sessions(pid)[:1] for row in session["overheads"]}
    found = overheads.get("window", {"count": 0, "total_ns": 0})
    return int(found["count"]), int(found["total_ns"]) / 1e6


def run_window(tracer, threads, decode, detail):
    programs = (threads, decode)
    decode.worker.give(DECODE_ORDER)
    with launching(threads):
        switch(tracer, programs, "pause", lambda found: found["state"] == "paused" and detail in found["detail"])
        switch(tracer, programs, "run", lambda found: found["state"] == "collecting")
        hooked = ["hooked_calls" in tracer.sessions(program.pid)[0]["level"] for program in programs]
        with capturing(tracer) as stored:
            time.sleep(CAPTURE_SECONDS)
        decode.ask_answer()
        details = [tracer.sessions(program.pid)[0]["detail"] for program in programs]
    row = stored[0]
    return judge(tracer.fetch_trace(int(row["id"]))) | {"hooked": hooked, "details": details} | {
        key: int(row[key]) for key in ("work", "work_matched", "ambiguous")}


def check_ordered(report, rig, name):
    rows, (detail, settle) = [], BETWEEN[name]
    with start_tracer(rig) as tracer, \
            Planted(rig, [rig.programs / "trace_threads", "serve"], tracer.socket, truth=False, **settle) as threads, \
            Planted(rig, work_command("eager"), tracer.socket, truth=False, **settle) as decode:
        for program in (threads, decode):
            program.wait_ready()
            tracer.wait_collecting(program.pid)
        tracer.wait_for_probes()
        for program in (threads, decode):
            found = tracer.sessions(program.pid)[0]
            report.say(f"     {found['comm']}: {found['state']}, {found['level']}, {found['detail']}")
        try:
            for _ in range(WINDOWS):
                rows.append(run_window(tracer, threads, decode, detail))
        finally:
            held = {program.pid: read_held_ms(tracer, program.pid) for program in (threads, decode)}
            sessions = {program.pid: tracer.sessions(program.pid)[:1] for program in (threads, decode)}
            save(rig, f"trace_windows, CUPTI {name}", {"windows": rows, "held": held, "sessions": sessions})
            report.say(f"     what sessions said: {sorted({detail for row in rows for detail in row['details'] if detail})}")
    report.check(f"{WINDOWS} windows while 8 threads and a decode launch, CUPTI {name} in between: calls are hooked in each",
                 len(rows) == WINDOWS and all(all(row["hooked"]) for row in rows), str([row["hooked"] for row in rows]))
    work, matched = (sum(row[key] for row in rows) for key in ("work", "work_matched"))
    report.check("every launch finds its kernel",
                 all(row["work"] == row["work_matched"] > 0 and not row["ambiguous"] for row in rows),
                 f"{matched} of {work}, ambiguous {sum(row['ambiguous'] for row in rows)}")
    report.check("and the one that its function launched", all(row["of_threads"] > 0 and not row["wrong"] for row in rows),
                 f"{sum(row['of_threads'] for row in rows)} compared; "
                 f"{[row['wrong'] for row in rows if row['wrong']][:3] or 'none wrong'}")
    for who, (count, total_ms) in zip(("threads", "decode"), held.values()):
        report.say(f"     {who}: launches were held {count} times, {total_ms / max(count, 1):.2f} ms on average")


def decode(worker, seconds, rows):
    """Adds the seconds of a token, again and again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        rows.append(1 / worker.ask(COST_ORDER))
    return rows


def check_cost(report, rig):
    """One process, in turns without a daemon and from the moment on that one is there, as shipped."""
    folder = rig.new_path("tracer")
    folder.mkdir()
    tracer = Tracer(rig, folder, budget_percent=None)
    worker = Worker(rig, work_command("eager"), tracer.socket, **BETWEEN["ended"][1])
    worker.read(120)
    ratios, bare = {name: [] for name in COST_MAX}, decode(worker, BARE_SECONDS, [])
    for number in range(COST_ROUNDS):
        with tracer.start():
            first, later = decode(worker, FIRST_SECONDS, []), []
            if number == COST_ROUNDS - 1:
                decode(worker, LATER_SECONDS, later)
            session = tracer.sessions(worker.process.pid)[0]
            report.say(f"     {session['state']}, {session['detail']}; collected {int(session['collected_ns']) / 1e9:.1f} of "
                       f"{int(session['age_ns']) / 1e9:.0f} s; {len(tracer.query('status').get('suspensions') or [])} suspensions")
        decode(worker, LEAVE_SECONDS, [])
        before, bare = bare, decode(worker, BARE_SECONDS, [])
        for name, rows in zip(ratios, (first, later)):
            if rows:
                ratios[name].append(statistics.fmean(rows) / statistics.fmean(before + bare))
    worker.finish(30)
    for name, limit in COST_MAX.items():
        middle = statistics.median(ratios[name])
        report.check(f"decode as shipped, {name}: at most {limit} of the time without a daemon", middle <= limit,
                     f"{middle:.3f}, median of {[round(ratio, 3) for ratio in ratios[name]]}")
    save(rig, "trace_windows_cost", ratios)


def check_windows(report, rig):
    for name in BETWEEN:
        check_ordered(report, rig, name)
    check_cost(report, rig)
