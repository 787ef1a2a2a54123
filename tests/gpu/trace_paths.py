"""Where the GPU's time went, by twenty planted call paths whose kernels know themselves what they took; and a
diff of two captures that differ in one layer."""

import re

from trace_compare import compare_paths, count_paths, sum_paths
from trace_rig import Planted, capturing, learn, save, start_tracer, work_command

PATH = re.compile(r"\bpath_\d\d\b")
REPEATS = 50
TOLERANCE = 0.01
SUM_TOLERANCE_US = 1.0
LAYERS = re.compile(r"\b(?:embed_tokens|mix_heads|feed_forward|project_out)\b")
SLOW_LAYER, SLOWER = "feed_forward", 3
ROUNDS = 400


def check_paths(report, rig):
    with start_tracer(rig) as tracer, \
            Planted(rig, [rig.programs / "trace_paths", "serve"], tracer.socket, truth=False) as program:
        program.wait_ready()
        tracer.wait_collecting(program.pid)
        tracer.wait_for_probes()
        learn(tracer, program, "paths 5 1")
        with capturing(tracer, program.pid) as rows:
            program.ask(f"paths {REPEATS} 7")
        truth = program.ask("times")["paths"]
        number = int(rows[0]["id"])
        trace, folded = tracer.fetch_trace(number), tracer.fetch_folded(number)
    truth_ns = {path: total_ns for path, (_, total_ns) in truth.items()}
    folded_us = sum_paths(folded, PATH)
    worst, wrong = compare_paths(truth_ns, folded_us, TOLERANCE)
    report.check(f"GPU time of 20 planted paths within {100 * TOLERANCE:.0f} %", len(truth_ns) == 20 and not wrong,
                 f"worst {100 * worst:.3f} % off; {'; '.join(wrong) or 'all within'}")
    counts = count_paths(trace, PATH)
    report.check("each path has the launches that it made",
                 counts == {path: count for path, (count, _) in truth.items()}, str(dict(counts)))
    kernels_us = sum(piece.duration_ns for piece in trace.work if piece.kind == "kernel") / 1000
    total_us = sum(folded_us.values())
    report.check("folded time of kernels adds up to that of the kernels' records",
                 kernels_us > 0 and abs(total_us - kernels_us) <= SUM_TOLERANCE_US,
                 f"{total_us:.3f} and {kernels_us:.3f} us")
    save(rig, "trace_paths", {"truth": truth, "folded_us": folded_us, "kernels_us": kernels_us,
                              "worst_ratio": worst})


def capture_layers(tracer, program):
    learn(tracer, program, "layers 20")
    with capturing(tracer, program.pid) as rows:
        program.ask(f"layers {ROUNDS}")
    number = int(rows[0]["id"])
    return number, sum_paths(tracer.fetch_folded(number), LAYERS)


def check_diff(report, rig):
    with start_tracer(rig) as tracer, \
            Planted(rig, work_command("layers"), tracer.socket, truth=False) as before, \
            Planted(rig, work_command("layers", "--slow", SLOW_LAYER), tracer.socket, truth=False) as after:
        for program in (before, after):
            program.wait_ready()
            tracer.wait_collecting(program.pid)
        tracer.wait_for_probes()
        (first, times), (second, slower) = (capture_layers(tracer, program) for program in (before, after))
        answer = tracer.query("diff", first, second)
        shown = tracer.ctl("diff", first, second).stdout
    report.say("\n".join(shown.splitlines()[:8]))
    ratios = {layer: round(slower[layer] / times[layer], 2) for layer in times if times[layer]}
    report.check(f"captures of two runs: one layer takes {SLOWER} times as long, the others do not",
                 len(ratios) == 4 and all(
                     abs(ratio / (SLOWER if layer == SLOW_LAYER else 1) - 1) < 0.2
                     for layer, ratio in ratios.items()), str(ratios))
    rows = answer if isinstance(answer, list) else next(
        (value for value in answer.values() if isinstance(value, list)), [])
    report.check("diff: its first row names the layer that became slower",
                 rows and SLOW_LAYER in str(rows[0]), str(rows[:2])[:800])
    save(rig, "trace_diff", {"ratios": ratios, "rows": rows[:10]})
