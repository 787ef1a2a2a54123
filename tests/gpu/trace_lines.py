"""Source lines of PC samples: planted lines of a program of nvcc's, of Triton's kernels and of torch.compile's, each in the way
that such programs load their modules."""

import subprocess
import sys

from session_rig import FOLDER
from trace_rig import Planted, save, start_tracer
from trace_stalls import find_kernel, sample

SECONDS = 6
# Kernel of stall_kernels.cu -> text of the line that its warps wait at.
PLANTED = {"chase_pointers": "at = next[at]", "wait_at_barriers": "__syncthreads();", "chain_fma": "value = fmaf(value, factor, factor);"}

PROGRAM = """
import sys, time, torch, trace_triton
left, right, out = (torch.randn(1 << 24, device="cuda") for _ in range(3))
soften = torch.compile(lambda values: torch.softmax(values * 2 + 1, dim=-1))
table = left.reshape(4096, 4096)
def work():
    for _ in range(10):
        trace_triton.launch_product(left, right, out)
        soften(table)
    torch.cuda.synchronize()
work()
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end: work()
print("done", flush=True)
"""


def describe(stalls):
    lines = [(f"{line['source']['file']}:{line['source']['line']}", round(line["share_ratio"], 3), line["stall"])
             for line in stalls["lines"][:4]]
    return f"{lines}; {stalls['unlined_samples']} of {stalls['samples']} samples without a line: {stalls['unlined_reason']!r}"


def get_first(kernel):
    """File and line with most samples of a kernel, by its own code; how many of its samples have a line."""
    stalls = kernel.get("stalls") or {"lines": [], "samples": 0, "unlined_samples": 0}
    if not stalls["lines"]:
        return "", 0, 0
    first = stalls["lines"][0]["source"]
    return first["outer_file"], first["outer_line"], 1 - stalls["unlined_samples"] / stalls["samples"]


def check_nvcc(report, rig, tracer):
    source = (rig.bundle / "stall_kernels.cu").read_text(encoding="utf-8").splitlines()
    with Planted(rig, [rig.programs / "stall_kernels", "serve"], tracer.socket, truth=False) as program:
        program.wait_ready()
        tracer.wait_collecting(program.pid)
        program.ask("all 2")
        program.worker.give(f"all {SECONDS + 4}")
        sample(tracer, program.pid, SECONDS)
        program.ask_answer()
        for name, text in PLANTED.items():
            kernel = find_kernel(tracer, program.pid, name)
            file, line, known = get_first(kernel)
            found = source[line - 1].strip() if 0 < line <= len(source) else ""
            report.check(f"{name}: the first line is the planted one", file.endswith("stall_kernels.cu") and text in found,
                         f"{file}:{line} {found!r}; {describe(kernel['stalls']) if kernel.get('stalls') else kernel}")
            report.check(f"{name}: every sample has a line", known == 1, f"{known}")
        report.say(tracer.ctl("kernels", "show", "*chase_pointers*", "--pid", program.pid).stdout)


def check_capture(report, rig, tracer):
    """A capture keeps the samples: below a kernel its time by stall reason."""
    with Planted(rig, [rig.programs / "stall_kernels", "serve"], tracer.socket, truth=False) as program:
        program.wait_ready()
        tracer.wait_collecting(program.pid)
        program.ask("all 2")
        program.worker.give(f"all {SECONDS + 6}")
        row = tracer.query("trace", "start", "--sampling", "--duration", f"{SECONDS}s", "--pid", program.pid, "--wait")
        program.ask_answer()
    folded = tracer.do("trace", "fetch", row["id"], "--format", "folded")
    times = {}
    for line in folded.splitlines():
        path, _, time_us = line.rpartition(" ")
        frames = path.split(";")
        kernel = next((frame for frame in frames if "chase_pointers" in frame and frame.startswith("[GPU")), None)
        if kernel:
            times[frames[-1]] = times.get(frames[-1], 0) + float(time_us)
    share = times.get("[GPU_Stall]long_scoreboard", 0) / max(sum(times.values()), 1e-9)
    report.check("a capture has chase_pointers' time by stall reason", share > 0.8, f"{share:.3f} long_scoreboard of {times}")
    page = tracer.do("trace", "fetch", row["id"], "--format", "report")
    report.check("its report has verdicts", "memory latency" in page or "memory bandwidth" in page, "")


def check_python(report, rig, tracer):
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, str(SECONDS + 12)], stdout=subprocess.PIPE, text=True, cwd=FOLDER,
                               stderr=open(rig.results / "lines_program.txt", "w", encoding="utf-8"),
                               env=rig.environment(tracer.socket) | {"PYTHONPATH": str(FOLDER)})
    try:
        program.stdout.readline()
        tracer.wait_collecting(program.pid)
        sample(tracer, program.pid, SECONDS)
        rows = [row for row in tracer.query("kernels", "--per-process", "--pid", program.pid) if row.get("stalls")]
        for row in rows:
            report.say(f"   {row['short_name'][:60]}: {describe(row['stalls'])}")
        triton = next((row for row in rows if "product_kernel" in row["kernel"]), {})
        file, line, known = get_first(triton)
        text = (FOLDER / "trace_triton.py").read_text(encoding="utf-8").splitlines()[line - 1] if line else ""
        report.check("Triton: the first line is one of its kernel that loads or stores",
                     file.endswith("trace_triton.py") and "tl." in text and known == 1, f"{file}:{line} {text.strip()!r} {known}")
        compiled = next((row for row in rows if row["short_name"].startswith("triton_")), {})
        file, line, known = get_first(compiled)
        report.check("torch.compile: the first line is one of the generated Python file", file.endswith(".py") and line > 0 and known == 1,
                     f"{file}:{line} {known}")
        report.check("the program ends as it should", program.stdout.readline().strip() == "done" and program.wait(30) == 0, "")
        return {row["short_name"]: row["stalls"] for row in rows}
    finally:
        program.kill()


def check_lines(report, rig):
    with start_tracer(rig) as tracer:
        check_nvcc(report, rig, tracer)
        check_capture(report, rig, tracer)
        save(rig, "trace_lines", check_python(report, rig, tracer))
