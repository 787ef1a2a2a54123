"""What sessions cost, beside torch.profiler and Nsight Systems on the same work, in turns; and what an
empty launch costs by level of collection. Prints rows for docs/overhead.md."""

import json
import statistics

from session_coexist import NSYS, find_tool
from session_harm import measure_levels
from session_rig import Worker, compare_speed, measure

ROUNDS = 5
UNITS = {"decode": "tokens/s", "graph": "replays/s"}
GRAPH_COST_MAX = 0.01
SHARE_OF_CHEAPEST = 0.5


def print_rates(report, program, figures):
    report.say(f"| {program} | {UNITS[program]} | of bare |\n|---|---|---|")
    for name, values in figures.items():
        ratio, low, high = compare_speed(figures, name)
        report.say(f"| {name} | {statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f}) | "
                   f"{ratio:.3f} ({low:.3f} to {high:.3f}) |")


def measure_programs(report, rig):
    rates = rig.work_command("rates", "--rates")
    profiled = rig.work_command("rates", "--profiler", "--rates")
    nsys = find_tool(NSYS)
    with rig.start_collector() as collector:
        workers = {"bare": Worker(rig, rates), "gpuperf": Worker(rig, rates, collector.socket),
                   "torch.profiler, CUDA only": Worker(rig, profiled)}
        if nsys:
            workers["nsys -t cuda"] = Worker(rig, [
                nsys, "profile", "--trace=cuda", "--sample=none", "--cpuctxsw=none",
                "--force-overwrite=true", "--output", rig.folder / "overhead", *rates])
        for name, worker in list(workers.items()):
            try:
                worker.read(120)
            except RuntimeError as error:
                report.check(f"{name} starts", False, str(error))
                del workers[name]
        figures = {program: {} for program in UNITS}
        for program, table in figures.items():
            measure(workers, program, ROUNDS, table)
        ends = {name: worker.finish(60)[0] for name, worker in workers.items()}
    for program, table in figures.items():
        print_rates(report, program, {name: table[name] for name in workers})
    report.say(f"     exit codes: {ends}")
    return figures


def judge(report, figures):
    def cost(program, name):
        return 1 - compare_speed(figures[program], name)[0]
    others = [name for name in figures["decode"] if name not in ("bare", "gpuperf")]
    ours = cost("decode", "gpuperf")
    cheapest = min(others, key=lambda name: cost("decode", name))
    report.check("eager decode: at most half of what the cheapest other tool costs",
                 ours <= SHARE_OF_CHEAPEST * cost("decode", cheapest),
                 f"{100 * ours:.1f} %; {cheapest} {100 * cost('decode', cheapest):.1f} %")
    graph = cost("graph", "gpuperf")
    report.check("graph of 2,000 kernels: less than 1 %", graph < GRAPH_COST_MAX,
                 f"{100 * graph:.2f} %; " + ", ".join(
                     f"{name} {100 * cost('graph', name):.1f} %" for name in others))


def print_levels(report, figures, graphs):
    report.say("| level | ns per launch | less bare | of bare | graph, replays/s | of bare |\n"
               "|---|---|---|---|---|---|")
    bare = statistics.median(figures["bare"])
    for name, values in figures.items():
        median = statistics.median(values)
        ratio, replays = compare_speed(figures, name, is_rate=False), compare_speed(graphs, name)
        report.say(f"| {name} | {median:.0f} ({min(values):.0f} to {max(values):.0f}) | "
                   f"{median - bare:+.0f} | "
                   f"{ratio[0]:.3f} ({ratio[1]:.3f} to {ratio[2]:.3f}) | "
                   f"{statistics.median(graphs[name]):.1f} | {replays[0]:.3f} |")


def check_overhead(report, rig):
    programs = measure_programs(report, rig)
    judge(report, programs)
    figures, graphs, states, _ = measure_levels(rig)
    print_levels(report, figures, graphs)
    report.say(f"     told off: {states}")
    (rig.results / "sessions_overhead.json").write_text(json.dumps(
        {"programs": programs, "ns_per_launch": figures, "graph_replays_per_second": graphs}, indent=1),
        encoding="utf-8")
