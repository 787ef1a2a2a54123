"""What traces cost a program that does nothing but launch, beside Nsight Systems and torch.profiler, in turns.

Each round measures those without us while no daemon runs, for its probes are felt by every process of the host;
then a daemon and a new process beside it, since what a session costs is decided when the process begins."""

import concurrent.futures
import re
import statistics
import time

from session_coexist import NSYS, find_tool
from session_overhead import print_rates
from session_rig import Worker, compare_speed
from trace_compare import sum_paths
from trace_rig import INIT_WAIT, save, start_tracer, work_command

ROUNDS, REPEATS = 3, 2
ORDER = "rate 24"
FUNCTIONS = re.compile(r"\b(?:layer_\d\d|embed_token|choose_token)\b")  # of the model
SETTLE_SECONDS = 4  # of work, in which the budget has its say
STACKS_MIN = 0.99
# How the daemon is set up: probes and budget. The shipped list of functions has many more than traces need, and
# a budget that takes out those that cost most.
SETUPS = {"as shipped": {"budget_percent": None},
          "launches only, no budget": {"budget_percent": 0, "probes": {"cuda_func_sym": {
              name: name for name in ("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel",
                                      "cuGraphLaunch", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
                                      "cuMemcpyDtoDAsync_v2", "cuMemcpyAsync", "cuMemsetD8Async",
                                      "cuMemsetD32Async")}}}}
WITH_STACKS = ("torch.profiler, CUDA and CPU, with_stack", "nsys -t cuda, backtraces of Python",
               "nsys -t cuda, backtraces")


def list_nsys(rig):
    """Name and command of each way to use it; none where it is not."""
    tool = find_tool(NSYS)
    if tool is None:
        return {}
    plain = [tool, "profile", "--trace=cuda", "--cpuctxsw=none", "--force-overwrite=true"]
    ways = {"nsys -t cuda": ["--sample=none"],
            "nsys -t cuda, backtraces": ["--sample=process-tree", "--cudabacktrace=kernel:1"],
            "nsys -t cuda, backtraces of Python": [
                "--sample=process-tree", "--cudabacktrace=kernel:1", "--python-backtrace=cuda"]}
    return {name: [*plain, *options, "--output", rig.new_path("nsys"), *work_command("eager")]
            for name, options in ways.items()}


def start_others(report, rig):
    """Those that need no daemon, by name, ready to be asked. All load at once: none is measured yet."""
    commands = {"bare": work_command("eager"),
                "torch.profiler, CUDA and CPU": work_command("eager", "--profiler", "both"),
                "torch.profiler, CUDA and CPU, with_stack": work_command("eager", "--profiler", "stack")}
    workers = {name: Worker(rig, command) for name, command in (commands | list_nsys(rig)).items()}
    for name, worker in list(workers.items()):
        try:
            worker.read(120)
            worker.ask(ORDER)
        except RuntimeError as error:
            report.say(f"     {name}: does not work here: {str(error)[-400:]}")
            if name == "bare":
                raise
            del workers[name]
    return workers


def ask_all(report, workers, figures):
    for name in list(workers):
        try:
            for _ in range(REPEATS):
                figures.setdefault(name, []).append(workers[name].ask(ORDER))
        except RuntimeError as error:
            report.say(f"     {name}: ended: {str(error)[-400:]}")
            del workers[name], figures[name]


def name_case(setup, is_capture):
    return f"gpuperf {setup}: {'full capture' if is_capture else 'always on'}"


def measure_setup(rig, figures, setup):
    """Always on, then within a capture; what became of the probes, and of the capture."""
    with start_tracer(rig, **SETUPS[setup]) as tracer:
        worker = Worker(rig, work_command("eager"), tracer.socket, **INIT_WAIT)
        worker.read(120)
        level = tracer.wait_collecting(worker.process.pid).get("level")
        tracer.wait_for_probes()
        end = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < end:
            worker.ask(ORDER)
        for _ in range(REPEATS):
            figures.setdefault(name_case(setup, False), []).append(worker.ask(ORDER))
        suspensions = tracer.query("status").get("suspensions")
        number = tracer.start_capture(worker.process.pid)
        for _ in range(REPEATS):
            figures.setdefault(name_case(setup, True), []).append(worker.ask(ORDER))
        row = tracer.stop_capture(number)
        totals = sum_paths(tracer.fetch_folded(number), FUNCTIONS)
        worker.finish(30)
    named_us = sum(total for name, total in totals.items() if name)
    return {"setup": setup, "level": level, "suspensions": suspensions, "row": row,
            "named_share": named_us / (sum(totals.values()) or 1)}


def is_whole(state):
    row = state["row"]
    return state["named_share"] >= STACKS_MIN and int(row["work"]) == int(row["work_matched"]) > 0 \
        and int(row["lost_events"]) == 0


def judge(report, figures, states):
    def cost(name):
        return 1 - compare_speed(figures, name)[0]
    for setup in SETUPS:
        mine = [state for state in states if state["setup"] == setup]
        report.check(f"{setup}: what was measured are whole captures, with stacks", all(map(is_whole, mine)),
                     "; ".join(f"{state['row']['work_matched']} of {state['row']['work']} matched, "
                               f"{100 * state['named_share']:.2f} % of the GPU's time below a function of the model"
                               for state in mine))
        always_on, full = name_case(setup, False), name_case(setup, True)
        for name in WITH_STACKS:
            if name in figures:
                report.check(f"{setup}: a full capture costs less than {name}", cost(full) < cost(name),
                             f"{100 * cost(full):.1f} %; {100 * cost(name):.1f} %")
        report.say(f"     {setup}: always on {100 * cost(always_on):.1f} %, full capture {100 * cost(full):.1f} %; "
                   f"bare differs from itself by {100 * cost('bare again'):.1f} %")


def measure_rounds(report, rig, workers):
    figures, states = {}, []
    for number in range(ROUNDS):
        ask_all(report, workers, figures)
        for setup in list(SETUPS)[::-1 if number % 2 else 1]:
            states.append(measure_setup(rig, figures, setup))
        for _ in range(REPEATS):
            figures.setdefault("bare again", []).append(workers["bare"].ask(ORDER))
    return figures, states


def check_cost(report, rig):
    workers = start_others(report, rig)
    try:
        figures, states = measure_rounds(report, rig, workers)
    finally:
        with concurrent.futures.ThreadPoolExecutor(len(workers)) as pool:  # nsys would write its report
            list(pool.map(lambda worker: worker.finish(15), workers.values()))
    print_rates(report, "decode", figures)
    judge(report, figures, states)
    ratios = {name: compare_speed(figures, name) for name in figures}
    save(rig, "trace_cost", {"tokens_per_second": figures, "of_bare": ratios, "states": states,
                             "bare_median": statistics.median(figures["bare"])})
