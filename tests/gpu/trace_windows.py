"""Windows of collection: sessions pause and go on while their programs launch without a break. In each window every
launch has to find its kernel, with CUPTI ended and begun anew in between. What is planted: the kernel's parity by
thread and stream in one program. And what a decode costs whose windows the daemon opens and closes."""

import contextlib
import re
import statistics
import threading
import time

from session_rig import Worker
from trace_rig import INIT_WAIT, Planted, capturing, save, start_tracer, work_command

WINDOWS = 6
CAPTURE_SECONDS = 0.25
PAUSE_SECONDS = 0.02
DECODE_TOKENS = 120
THREADS_ORDER, DECODE_ORDER = "threads 300", f"eager {DECODE_TOKENS}"
PARITY = re.compile(r"thread_(\d)_(even|odd)")
ENDED = "CUPTI is finalised"
COST_ORDER, COST_ROUNDS = "rate 32", 12
COST_MAX = 1.01


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


def run_window(tracer, threads, decode):
    programs = (threads, decode)
    decode.worker.give(DECODE_ORDER)
    with launching(threads):
        switch(tracer, programs, "pause", lambda found: ENDED in found["detail"])
        switch(tracer, programs, "run", lambda found: found["state"] == "collecting")
        hooked = ["hooked_calls" in tracer.sessions(program.pid)[0]["level"] for program in programs]
        with capturing(tracer) as stored:
            time.sleep(CAPTURE_SECONDS)
        decode.ask_answer()
        details = [tracer.sessions(program.pid)[0]["detail"] for program in programs]
    row = stored[0]
    return judge(tracer.fetch_trace(int(row["id"]))) | {"hooked": hooked, "details": details} | {
        key: int(row[key]) for key in ("work", "work_matched", "ambiguous")}


def check_ordered(report, rig):
    rows = []
    with start_tracer(rig) as tracer, \
            Planted(rig, [rig.programs / "trace_threads", "serve"], tracer.socket, truth=False) as threads, \
            Planted(rig, work_command("eager"), tracer.socket, truth=False) as decode:
        for program in (threads, decode):
            program.wait_ready()
            tracer.wait_collecting(program.pid)
        tracer.wait_for_probes()
        for program in (threads, decode):
            found = tracer.sessions(program.pid)[0]
            report.say(f"     {found['comm']}: {found['state']}, {found['level']}, {found['detail']}")
        try:
            for _ in range(WINDOWS):
                rows.append(run_window(tracer, threads, decode))
        finally:
            held = {name: read_held_ms(tracer, program.pid) for name, program in (("threads", threads), ("decode", decode))}
            sessions = {program.pid: tracer.sessions(program.pid)[:1] for program in (threads, decode)}
            save(rig, "trace_windows", {"windows": rows, "held": held, "sessions": sessions})
            report.say(f"     what sessions said: {sorted({detail for row in rows for detail in row['details'] if detail})}")
    report.check(f"{WINDOWS} windows while 8 threads and a decode launch: calls are hooked in each",
                 len(rows) == WINDOWS and all(all(row["hooked"]) for row in rows), str([row["hooked"] for row in rows]))
    work, matched = (sum(row[key] for row in rows) for key in ("work", "work_matched"))
    report.check("every launch finds its kernel",
                 all(row["work"] == row["work_matched"] > 0 and not row["ambiguous"] for row in rows),
                 f"{matched} of {work}, ambiguous {sum(row['ambiguous'] for row in rows)}")
    report.check("and the one that its function launched", all(row["of_threads"] > 0 and not row["wrong"] for row in rows),
                 f"{sum(row['of_threads'] for row in rows)} compared; "
                 f"{[row['wrong'] for row in rows if row['wrong']][:3] or 'none wrong'}")
    for name, (count, total_ms) in held.items():
        report.say(f"     {name}: launches were held {count} times, {total_ms / max(count, 1):.2f} ms on average")


def check_cost(report, rig):
    """Injected beside not injected, with the daemon's own windows; and always collected."""
    rates, shares = {}, {}
    for name, ingest in {"windows": {"windows_after_seconds": 0}, "always": {"cupti_budget_percent": 0}}.items():
        with start_tracer(rig, probes={}, more={"ingest": ingest}) as tracer:
            workers = {"bare": Worker(rig, work_command("eager"), None),
                       name: Worker(rig, work_command("eager"), tracer.socket, **INIT_WAIT)}
            for worker in workers.values():
                worker.read(120)
                worker.ask(COST_ORDER)
            pid = workers[name].process.pid
            time.sleep(6)
            for number in range(COST_ROUNDS):
                for each in list(workers)[::-1 if number % 2 else 1]:
                    rates.setdefault((name, each), []).append(workers[each].ask(COST_ORDER))
            session = tracer.sessions(pid)[0]
            shares[name] = int(session["collected_ns"]) / int(session["age_ns"])
            report.say(f"     {name}: {session['state']}, in windows {session['in_windows']}, {session['detail']}; collected "
                       f"{100 * shares[name]:.1f} % of {int(session['age_ns']) / 1e9:.0f} s")
            for worker in workers.values():
                worker.finish(30)
    ratios = {name: [bare / own for bare, own in zip(rates[name, "bare"], rates[name, name])] for name in shares}
    for name, values in ratios.items():
        report.say(f"     decode, {name}: {statistics.median(values):.4f} of bare's time "
                   f"({min(values):.4f} to {max(values):.4f})")
    report.check(f"decode in windows: at most {COST_MAX} of bare", statistics.median(ratios["windows"]) <= COST_MAX,
                 f"{statistics.median(ratios['windows']):.4f}; always collected {statistics.median(ratios['always']):.4f}")
    save(rig, "trace_windows_cost", {"rates": {"/".join(key): value for key, value in rates.items()}, "shares": shares})


def check_windows(report, rig):
    check_ordered(report, rig)
    check_cost(report, rig)
