"""CUDA graphs that were captured before any capture of ours, replayed in one: each node is of the function that was
captured into it, and launched by the one that replays."""

import collections
import re
import sys
import time

from session_rig import FOLDER
from trace_compare import name_kernel, sum_paths
from trace_rig import NODE_BURSTS, Planted, capturing, learn, save, start_tracer
from trace_sites import compare_sites, describe_replay, select_nodes
from trace_truth import attempt

REPLAYS = 200
# Graph, what it was captured by, whether every node's capture site has to be known. Where calls or nodes that are
# none of ours lie between the captured ones, sites may stay unknown, but none may be wrong.
REPLAYED = [("one_stream", "site", True), ("two_streams", "site", True), ("two_threads", "site", True),
            ("updated", "alt", True), ("by_hand", None, False), ("at_once_1", "site", False),
            ("at_once_2", "site", False), ("with_bystander", "site", False), ("with_others", "site", False),
            ("updated_later", "site", True)]
LEARN_SECONDS = 1.0  # where code is met for the first time, stacks end there until it has been read

# Of PyTorch's step: kernel -> the Python function that calls it, "" = autograd's thread does.
FUNCTIONS = {"sin_kernel_cuda": "embed_tokens", "tanh_kernel_cuda": "mix_heads",
             "sigmoid_kernel_cuda": "feed_forward", "erf_kernel_cuda": "project_out",
             "tanh_backward_kernel_cuda": "", "sigmoid_backward_kernel_cuda": ""}
KNOWN_KERNEL = re.compile(rf"\b(?:{'|'.join(FUNCTIONS)})")
PYTHON = re.compile(r"\b(?:embed_tokens|mix_heads|feed_forward|project_out|replay_step)\b")
REPLAY_STEP = "replay_step"


def replay_planted(tracer, program):
    """A capture of every graph's replays: [(label, nodes, steps, prefix, whether each site has to be known)]."""
    program.ask("capture")
    time.sleep(LEARN_SECONDS)
    before = program.ask("capture")
    learn(tracer, program, "replay 20 one_stream")
    parts = []
    with capturing(tracer, program.pid, nodes=True) as rows:
        for name, prefix, is_known in REPLAYED:
            parts.append((name, program.ask(f"replay {REPLAYS} {name}"), before["graphs"][name], prefix, is_known))
        after = program.ask("update")
        time.sleep(0.1)  # the replays before are told from those after by time
        parts.append(("updated_later, now", program.ask(f"replay {REPLAYS} updated_later"),
                      after["graphs"]["updated_later"], "alt", True))
    trace = tracer.fetch_trace(int(rows[0]["id"]))
    return rows[0], after["handles_again"], [
        (label, select_nodes(trace.work, answer["begin_mono_ns"], answer["end_mono_ns"]), steps, prefix, is_known)
        for label, answer, steps, prefix, is_known in parts]


def check_planted(report, tracer, program):
    row, handles_again, parts = replay_planted(tracer, program)
    report.say(f"     {handles_again} graphs had the handle of an earlier one; capture: "
               f"{ {key: row.get(key) for key in ('launches', 'work', 'work_matched', 'lost_events')} }")
    total, seen = collections.Counter(), {}
    for label, nodes, steps, prefix, is_known in parts:
        findings = compare_sites(nodes, steps, prefix)
        total.update(right=findings.right, wrong=findings.wrong, bare=findings.bare, without=findings.without)
        passed, claim = findings.wrong == 0, "no node is of a wrong capture site"
        if prefix is None:
            passed, claim = findings.without == findings.nodes(), "no node has a capture site"
        elif is_known:
            passed, claim = findings.right == findings.nodes(), "every node is of its capture site"
        passed = passed and findings.replays == REPLAYS and findings.is_whole()
        report.check(f"graph {label}: {claim}, and every replay is whole", passed, findings.describe())
        replay = describe_replay(nodes, steps)
        is_best = findings.without == findings.nodes() if prefix is None else findings.right == findings.nodes()
        for line in [] if passed and is_best else replay:
            report.say(f"       {line}")
        seen[label] = {"findings": findings.describe(), "replay": replay}
    report.check("all graphs: no node is of a wrong capture site", total["wrong"] == 0 < total["right"],
                 ", ".join(f"{count} {what}" for what, count in total.items()))
    return seen | {"total": total}


def judge_kernel(piece, main_tid):
    """right, wrong or without: a kernel of PyTorch's step whose caller is known by its name; else None."""
    found = KNOWN_KERNEL.search(name_kernel(piece.name))
    if found is None:
        return None
    if piece.capture_site is None:
        return "without"
    wanted = FUNCTIONS[found[0]]
    planted = {name for frame in piece.capture_site.stack or () for name in PYTHON.findall(frame)}
    if wanted:
        return "right" if planted == {wanted} else "wrong"
    return "right" if not planted and piece.capture_site.tid != main_tid else "wrong"


def check_torch(report, tracer, program):
    program.ask("capture")
    time.sleep(LEARN_SECONDS)
    main_tid = program.ask("capture")["tid"]
    learn(tracer, program, "replay 20")
    with capturing(tracer, program.pid, nodes=True) as rows:
        program.ask(f"replay {REPLAYS}")
    number = int(rows[0]["id"])
    nodes = [piece for piece in tracer.fetch_trace(number).work if piece.kind == "kernel" and piece.graph_id]
    judged = collections.Counter(judge_kernel(piece, main_tid) for piece in nodes)
    passed = judged["right"] >= REPLAYS * len(FUNCTIONS) and not judged["wrong"] and not judged["without"]
    report.check("step of PyTorch: kernels are of the function that called them, or of autograd's thread", passed,
                 f"{judged['right']} right, {judged['wrong']} wrong, {judged['without']} without")
    known = sum(piece.capture_site is not None for piece in nodes)
    report.check("step of PyTorch: every node has a capture site", known == len(nodes) > 0, f"{known} of {len(nodes)}")
    by_replay, by_site = (sum_paths(tracer.fetch_folded(number, *options), PYTHON)
                          for options in ((), ("--by-capture-site",)))
    report.check("step of PyTorch: folded, all time is the replay's", set(by_replay) == {REPLAY_STEP},
                 f"{dict(by_replay)} us")
    functions = set(FUNCTIONS.values()) - {""}
    report.check("step of PyTorch: folded --by-capture-site, time is that of the functions captured, none the replay's",
                 functions <= set(by_site) and REPLAY_STEP not in by_site, f"{dict(by_site)} us")
    examples = describe_step(nodes)
    for line in [] if passed else examples:
        report.say(f"       {line}")
    return {"judged": {str(key): count for key, count in judged.items()}, "by_replay_us": by_replay,
            "by_site_us": by_site, "nodes": examples}


def describe_step(nodes):
    """Each node once: its kernel, the thread and the last frames of its capture site."""
    rows = {}
    for piece in nodes:
        site = piece.capture_site
        told = f"tid {site.tid} {' ; '.join(frame[:60] for frame in (site.stack or ())[-4:])}" if site else "none"
        rows.setdefault(piece.node_id, f"{piece.node_id}: {name_kernel(piece.name)[:100]} < {told}")
    return [rows[node] for node in sorted(rows)]


def check_graph_sites(report, rig):
    with start_tracer(rig) as tracer, \
            Planted(rig, [rig.programs / "trace_graphs", "serve"], tracer.socket, False, **NODE_BURSTS) as planted, \
            Planted(rig, [sys.executable, FOLDER / "trace_graph_model.py", "serve"], tracer.socket, False,
                    **NODE_BURSTS) as model:
        for program in (planted, model):
            program.wait_ready()
            tracer.wait_collecting(program.pid)
        tracer.wait_for_probes()
        seen = {"planted": attempt(report, "graphs of planted steps", check_planted, report, tracer, planted),
                "torch": attempt(report, "step of PyTorch", check_torch, report, tracer, model)}
    save(rig, "trace_graph_sites", seen)
