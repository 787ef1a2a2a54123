"""Nodes of CUDA graphs against the steps that were captured into them (trace_graph_steps.cuh). No GPU, no process:
rows in, findings out."""

import collections
import dataclasses
import re

from trace_compare import has_names

KERNEL = re.compile(r"\bnode_(\d\d)\b")
PLANTED = re.compile(r"\b(?:site|alt)_\d\d\b|\bbystander\b")
STEP_BYTES = 256
REPLAY = "replay_site"
EXAMPLES = 3


@dataclasses.dataclass
class SiteFindings:
    """How many nodes of each kind, in all replays of one graph."""
    replays: int = 0
    whole: int = 0      # replays with every step of the graph, and nothing else
    right: int = 0
    wrong: int = 0      # another function's, or one where there is none
    bare: int = 0       # the stack of its capture site, or its own name, shows no step
    without: int = 0    # no capture site
    elsewhere: int = 0  # nodes whose launch is no replay's
    stale: int = 0      # copies and sets whose record has another one's kind or size, as CUPTI 13.0 gives them
    examples: list = dataclasses.field(default_factory=list)

    def nodes(self):
        return self.right + self.wrong + self.bare + self.without

    def is_whole(self):
        return self.whole == self.replays > 0 and self.elsewhere == 0

    def describe(self):
        text = f"{self.right} right, {self.wrong} wrong, {self.bare} whose stack or name tells nothing, " \
               f"{self.without} without; {self.whole} of {self.replays} replays whole"
        if self.elsewhere:
            text += f"; {self.elsewhere} nodes launched elsewhere"
        if self.stale:
            text += f"; {self.stale} copies and sets with another's kind or size"
        return text + (f"; for instance {self.examples}" if self.examples else "")


def find_step(piece):
    """Number of the step that a piece of work is, None of others."""
    if piece.kind == "kernel":
        found = KERNEL.search(piece.name)
        return int(found[1]) if found else None
    return piece.size_bytes // STEP_BYTES if piece.size_bytes and piece.size_bytes % STEP_BYTES == 0 else None


def find_planted(launch):
    """The planted functions in a launch's stack."""
    return sorted({name for frame in launch.stack or () for name in PLANTED.findall(frame)})


def select_nodes(work, begin_ns, end_ns):
    """What graphs did that were launched in a time; what has no launch, by its own begin."""
    def is_in(piece):
        return begin_ns <= (piece.launch.start_ns if piece.launch else piece.start_ns) <= end_ns
    return [piece for piece in work if piece.kind != "graph" and is_in(piece)]


def judge_node(piece, step, prefix, findings):
    site = piece.capture_site
    if piece.launch is None or not has_names(piece.launch.stack or (), [REPLAY]):
        findings.elsewhere += 1
    if site is None:
        findings.without += 1
        return
    planted = find_planted(site)
    if prefix and step is not None and planted == [f"{prefix}_{step:02}"]:
        findings.right += 1
        return
    if prefix and (step is None or not planted):
        findings.bare += 1
    else:
        findings.wrong += 1
    if len(findings.examples) < EXAMPLES:
        findings.examples.append({"node": piece.node_id, "graph": piece.graph_id, "step": step, "site": planted,
                                  "call": site.name, "tid": site.tid, "stack": (site.stack or ())[-6:]})


def split_replays(nodes):
    """Lists of the nodes of each launch, in the order of the launches; those without one are left out."""
    replays = collections.defaultdict(list)
    for piece in nodes:
        if piece.launch is not None:
            replays[id(piece.launch)].append(piece)
    return sorted(replays.values(), key=lambda replay: replay[0].launch.start_ns)


def name_steps(replay, steps):
    """(piece, its step) of one replay. A kernel's name tells its step. That of a copy or a set is the one captured in
    its turn, since its record may have another's kind and size: see SiteFindings.stale."""
    in_turn = sorted(replay, key=lambda piece: piece.node_id)
    for place, piece in enumerate(in_turn):
        step = find_step(piece)
        if piece.kind != "kernel" and len(replay) == len(steps):
            step = steps[place]
        yield piece, step


def compare_sites(nodes, steps, prefix):
    """Nodes of one graph's replays. `steps`: what was captured, in order. `prefix`: of the functions that captured
    them; None = nobody did."""
    findings, wanted = SiteFindings(), collections.Counter(steps)
    for piece in nodes:
        if piece.launch is None:
            judge_node(piece, find_step(piece), prefix, findings)
    for replay in split_replays(nodes):
        named = list(name_steps(replay, steps))
        for piece, step in named:
            judge_node(piece, step, prefix, findings)
            findings.stale += step != find_step(piece)
        findings.replays += 1
        findings.whole += collections.Counter(step for _, step in named) == wanted
    return findings


def describe_replay(nodes, steps):
    """The first replay as lines of text: what was captured, and each node with where it is said to be from."""
    def tell(piece):
        step, site = find_step(piece), piece.capture_site
        name = piece.kind if step is None else f"{step:02}"
        return f"{piece.node_id}:{name}<{'none' if site is None else '+'.join(find_planted(site)) or 'bare'}"
    replay = next(iter(split_replays(nodes)), [])
    return [f"graphs {sorted({piece.graph_id for piece in replay})}; captured in the order "
            f"{' '.join(f'{step:02}' for step in steps)}",
            f"by node: {' '.join(tell(piece) for piece in sorted(replay, key=lambda piece: piece.node_id))}",
            f"by time: {' '.join(str(piece.node_id) for piece in sorted(replay, key=lambda piece: piece.start_ns))}"]
