import sys, pathlib, tempfile, json, time, glob
sys.path.insert(0, "/tmp/.gpu-bundle")
from session_rig import Report, Rig
from trace_rig import Tracer, Planted, work_command
from trace_attach import Program, Steps, change, wait_first_kernel
CUPTI = ["cuptiActivityEnable","cuptiActivityDisable","cuptiActivityRegisterCallbacks","cuptiSetThreadIdType","cuptiActivitySetAttribute","cuptiGetTimestamp","cuptiActivityFlushAll","cuptiGetStreamIdEx","cuptiFinalize"]
with tempfile.TemporaryDirectory() as folder:
    out = pathlib.Path(sys.argv[1])
    rig = Rig(pathlib.Path("/tmp/.gpu-bundle"), out, folder)
    f = rig.new_path("tracer"); f.mkdir()
    tracer = Tracer(rig, f)
    lib = [p for p in glob.glob("/opt/torch/.venv/lib/python3*/site-packages/nvidia/**/libcupti.so*", recursive=True)]
    print(lib)
    cfg = json.loads((f/"config.json").read_text())
    cfg.setdefault("custom_sym", {}).update({n: {"symbol": n, "may_throw": False} for n in CUPTI})
    cfg.setdefault("libraries", {})["custom_sym"] = lib
    cfg["slow"] = {"default_threshold_ms": 1, "adaptive_factor": 0, "recent": 5000}
    (f/"config.json").write_text(json.dumps(cfg))
    tracer.start(); tracer.wait_for_probes()
    parts = ["triton"]*5 + ["eager","lt","train"]
    programs = [Program(rig, work_command(p)) for p in parts]
    for p in programs: p.wait_ready()
    for part, p in zip(parts, programs):
        with Steps([p], f"each {part} 0.5") as steps:
            time.sleep(1.5)
            row, b, e = change(tracer, "attach", p.pid)
            wait_first_kernel(tracer, p.pid); time.sleep(1.5)
        rows = [r for r in tracer.query("slow", "list", "--pid", p.pid, "--limit", 2000) if int(r["start_mono_ns"]) > b - 10_000_000]
        rows.sort(key=lambda r: int(r["start_mono_ns"]))
        print("==", part, p.pid, "held", int(row["held_ns"])/1e6, "took", int(row["took_ns"])/1e6, "longest step", round(steps.longest_ms(b, time.monotonic_ns()),1), [ (round((x-b)/1e6), round(l/1e6,1)) for x,l in steps.rows if l>5e6 and x+l>b][:8])
        for r in rows[:40]:
            print("  +%.1f ms  %.2f ms  %s tid %s  %s" % ((int(r["start_mono_ns"])-b)/1e6, int(r["duration_ns"])/1e6, r["function"], r["tid"], r["explanation"][:110]))
        s=(tracer.sessions(p.pid) or [{}])[0]; print("  ", s.get("state"), s.get("overheads"))
    for p in programs: p.worker.finish(10)
    tracer.stop()
