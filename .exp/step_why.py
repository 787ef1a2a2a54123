import sys, pathlib, tempfile, json
sys.path.insert(0, "/tmp/.gpu-bundle")
import trace_steps
from trace_rig import start_tracer
from session_rig import Report, Rig
with tempfile.TemporaryDirectory() as folder:
    out = pathlib.Path(sys.argv[1])
    report = Report(out / "s.txt")
    rig = Rig(pathlib.Path("/tmp/.gpu-bundle"), out, folder)
    with start_tracer(rig) as tracer:
        tracer.wait_for_probes()
        q = tracer.query
        def query(*words):
            r = q(*words)
            if words[0] == "why": (out / "why.json").write_text(json.dumps(r, indent=1))
            return r
        tracer.query = query
        trace_steps.run_serving(report, rig, tracer, "tolist", True)
