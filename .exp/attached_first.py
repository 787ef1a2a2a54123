import sys, pathlib, tempfile
sys.path.insert(0, "/tmp/.gpu-bundle")
import launch_cost
from session_rig import Report, Rig
launch_cost.SWITCHED = dict(list(launch_cost.SWITCHED.items())[:1])
with tempfile.TemporaryDirectory() as folder:
    out = pathlib.Path(sys.argv[1])
    report = Report(out / "s.txt")
    launch_cost.check_attached_cost(report, Rig(pathlib.Path("/tmp/.gpu-bundle"), out, folder))
